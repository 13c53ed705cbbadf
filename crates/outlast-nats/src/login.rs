//! How a connection begins: whom we believe and who we are; and, where none comes about, what is to be done.
//!
//! The files are read when we start, so that a wrong one is told at once, and those of TLS again with each connection by the
//! client, so that a certificate that was renewed is taken.

use std::{fmt::Display, fs, path::Path, time::Duration};

use async_nats::{
    ConnectOptions,
    rustls::{
        ClientConfig, RootCertStore,
        crypto::ring,
        pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    },
};
use nkeys::{KeyPair, KeyPairType};
use outlast_core::broker::Why;

use crate::{NatsError, NatsSettings};

/// A connection that says nothing is given up after three of them.
const PING: Duration = Duration::from_secs(2);
const CONNECT: Duration = Duration::from_secs(3);

/// What the client has to know for a connection.
///
/// # Errors
/// When a file cannot be read, or is not what it has to be.
pub(crate) fn options(settings: &NatsSettings) -> Result<ConnectOptions, NatsError> {
    // The client takes the one of the process, and must find one. Whoever has chosen before us has chosen.
    let _ = ring::default_provider().install_default();
    let mut options = ConnectOptions::new()
        .name(&settings.name)
        .retry_on_initial_connect()
        .connection_timeout(CONNECT)
        .ping_interval(PING)
        // Exponential from 2 ms in the client's own; a server that comes back should be found within a second.
        .reconnect_delay_callback(|attempt| {
            let doublings = u32::try_from(attempt.min(10)).unwrap_or(10);
            Duration::from_millis(1 << doublings).min(Duration::from_secs(1))
        })
        .require_tls(settings.wants_tls());
    if let Some(prefix) = &settings.inbox_prefix {
        options = options.custom_inbox_prefix(prefix);
    }
    if settings.tls_first {
        options = options.tls_first();
    }
    if let Some(ca) = &settings.tls_ca {
        let mut roots = RootCertStore::empty();
        for certificate in certificates(ca)? {
            roots.add(certificate).map_err(|why| unread(ca, why))?;
        }
        options = options.add_root_certificates(ca.clone());
    }
    if let (Some(certificate), Some(key)) = (&settings.tls_certificate, &settings.tls_key) {
        fits(certificate, key)?;
        options = options.add_client_certificate(certificate.clone(), key.clone());
    }
    who(options, settings)
}

fn who(options: ConnectOptions, settings: &NatsSettings) -> Result<ConnectOptions, NatsError> {
    if let Some(file) = &settings.credentials_file {
        let text = fs::read_to_string(file).map_err(|why| unread(file, why))?;
        // Not with the client's reason: it quotes what it has read.
        let bad = |_| {
            unread(
                file,
                "there is no user's JWT with its seed in it, as `nsc generate creds` writes it",
            )
        };
        return options.credentials(&text).map_err(bad);
    }
    if let Some(file) = &settings.nkey_file {
        let text = fs::read_to_string(file).map_err(|why| unread(file, why))?;
        let seed = seed(&text).ok_or_else(|| {
            unread(
                file,
                "there is no seed of a user in it, which begins with SU",
            )
        })?;
        return Ok(options.nkey(seed.to_owned()));
    }
    if let Some(token) = &settings.token {
        return Ok(options.token(token.clone()));
    }
    if let (Some(user), Some(password)) = (&settings.user, &settings.password) {
        return Ok(options.user_and_password(user.clone(), password.clone()));
    }
    Ok(options)
}

/// The seed of a user in such a file: alone on its line, whatever stands around it.
fn seed(text: &str) -> Option<&str> {
    let is_users = |line: &&str| {
        KeyPair::from_seed(line).is_ok_and(|pair| pair.key_pair_type() == KeyPairType::User)
    };
    text.lines().map(str::trim).find(is_users)
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, NatsError> {
    let read = CertificateDer::pem_file_iter(file).and_then(Iterator::collect);
    let all: Vec<_> = read.map_err(|why| unread(file, why))?;
    if all.is_empty() {
        return Err(unread(file, "there is no certificate in it"));
    }
    Ok(all)
}

/// Whether the key is that of the certificate.
fn fits(certificate: &Path, key: &Path) -> Result<(), NatsError> {
    let chain = certificates(certificate)?;
    let secret = PrivateKeyDer::from_pem_file(key).map_err(|why| unread(key, why))?;
    let config = ClientConfig::builder_with_provider(ring::default_provider().into())
        .with_safe_default_protocol_versions()
        .map_err(|why| unread(certificate, why))?
        .with_root_certificates(RootCertStore::empty());
    let fits = config.with_client_auth_cert(chain, secret);
    fits.map(drop).map_err(|why| {
        unread(
            key,
            format!("it is not the key of {}: {why}", certificate.display()),
        )
    })
}

fn unread(file: &Path, why: impl Display) -> NatsError {
    NatsError::File(file.to_owned(), why.to_string())
}

/// What it means that there is no connection, and what is to be done. `said`: the words of the client, which has nothing else;
/// nothing is decided by them but which class and which advice are told.
pub(crate) fn trouble(settings: &NatsSettings, said: &str) -> (Why, Option<String>) {
    let low = said.to_ascii_lowercase();
    let has = |words: &[&str]| words.iter().any(|word| low.contains(word));
    if has(&["authorization", "authentication", "signing nonce"]) {
        return (Why::Denied, Some(unknown_user(settings)));
    }
    let tls = if has(&["unknownissuer"]) {
        match &settings.tls_ca {
            Some(ca) => format!(
                "no authority in {} has signed the server's certificate: tls_ca is to be the file of the one that has",
                ca.display()
            ),
            None => "no authority that this system knows has signed the server's certificate: set tls_ca to the file of the \
                     one that has"
                .into(),
        }
    } else if has(&["not valid for name", "notvalidforname"]) {
        "the server's certificate is for another name: urls has to say one that it is for".into()
    } else if has(&["certificate expired", "not valid yet"]) {
        "give the server a certificate that is valid now, or set the clock".into()
    } else if has(&[
        "certificaterequired",
        "badcertificate",
        "unknownca",
        "handshakefailure",
    ]) {
        match settings.tls_certificate {
            Some(_) => "the server does not take our certificate: tls_certificate has to be one of an authority that it knows".into(),
            None => "the server wants a certificate of ours: set tls_certificate and tls_key".into(),
        }
    } else if has(&["corrupt message", "invalidcontenttype"]) {
        "the server offers no TLS at this address: switch it on there, or do without tls_required, tls_first, tls_ca and tls://"
            .into()
    } else if has(&["timed out", "expected info"]) && settings.wants_tls() && !settings.tls_first {
        return (
            Why::Unavailable,
            Some("if the server begins with TLS (handshake_first), set tls_first".into()),
        );
    } else {
        return (Why::Unavailable, None);
    };
    (Why::Configuration, Some(tls))
}

fn unknown_user(settings: &NatsSettings) -> String {
    let named = settings.urls.iter().any(|url| url.contains('@'));
    if let Some(file) = &settings.credentials_file {
        let file = file.display();
        return format!(
            "the server does not take the user of {file}: it has expired, was revoked, or is of another operator; get new credentials"
        );
    }
    if let Some(file) = &settings.nkey_file {
        let file = file.display();
        return format!(
            "the server knows no user with the key of {file}: its public part belongs into the server's `users`"
        );
    }
    if settings.token.is_some() {
        return "the server has another token: set token".into();
    }
    match &settings.user {
        Some(user) => format!("the server knows no user {user} with this password: set user and password"),
        None if named => "the server does not take the user of urls: mend it there".into(),
        None => "the server wants to know who we are: set credentials_file, nkey_file, token, or user and password".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_found_alone_and_within_its_frame_and_only_a_users() {
        let user = KeyPair::new_user().seed().expect("it has one");
        let framed =
            format!("-----BEGIN USER NKEY SEED-----\n{user}\n------END USER NKEY SEED------\n");
        for text in [user.clone(), format!("\n {user}\r\n"), framed] {
            assert_eq!(seed(&text), Some(&*user));
        }
        let account = KeyPair::new_account().seed().expect("it has one");
        for text in ["", "SUAAAA", &*account, &user[..50]] {
            assert_eq!(seed(text), None);
        }
    }

    #[test]
    fn each_trouble_has_its_class_and_its_advice() {
        let mut settings = NatsSettings::at("nats://h:4222");
        let mut told = |said: &str, why: Why, about: &str| {
            let (class, advice) = trouble(&settings, said);
            assert_eq!(class, why, "{said}");
            assert!(advice.unwrap_or_default().contains(about), "{said}");
            settings.user = Some("joe".into());
        };
        told("authorization violation", Why::Denied, "credentials_file");
        told("authorization violation", Why::Denied, "joe");
        told(
            "IO error: invalid peer certificate: UnknownIssuer",
            Why::Configuration,
            "tls_ca",
        );
        told(
            "IO error: received fatal alert: CertificateRequired",
            Why::Configuration,
            "tls_key",
        );
        told(
            "IO error: Connection refused (os error 111)",
            Why::Unavailable,
            "",
        );
    }
}
