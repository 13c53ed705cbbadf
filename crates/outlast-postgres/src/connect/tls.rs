//! TLS by rustls, with libpq's six modes.
//!
//! `prefer` and `require` encrypt but check no certificate, as in libpq; `verify-ca` checks who signed it, `verify-full`
//! also whom it names. Without `sslrootcert` the file `~/.postgresql/root.crt` counts, else the system's certificates.

use super::params::Params;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::CryptoProvider,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject},
};
use std::{
    path::{Path, PathBuf},
    sync::Arc,
};
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres_rustls::MakeRustlsConnect;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Disable,
    Prefer,
    Require,
    VerifyCa,
    VerifyFull,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tls {
    pub(super) mode: Mode,
    /// The file of trusted certificates; the system's when there is none.
    pub(super) root: Option<PathBuf>,
    /// Our own certificate and its key.
    pub(super) client: Option<(PathBuf, PathBuf)>,
    direct: bool,
}

impl Tls {
    /// Takes out what tokio-postgres does not know.
    pub(super) fn from_params(params: &mut Params, home: Option<&Path>) -> Result<Self, String> {
        let mode = params.take("sslmode");
        let root = params.take("sslrootcert");
        let (cert, key) = (params.take("sslcert"), params.take("sslkey"));
        let system = root.as_deref() == Some("system");
        let mode = match (mode.as_deref(), &root) {
            (None, _) if system => Mode::VerifyFull,
            (None | Some("prefer" | "allow"), _) => Mode::Prefer,
            (Some("disable"), _) => Mode::Disable,
            // libpq: `require` with a root certificate checks the chain.
            (Some("require"), Some(_)) => Mode::VerifyCa,
            (Some("require"), None) => Mode::Require,
            (Some("verify-ca"), _) => Mode::VerifyCa,
            (Some("verify-full"), _) => Mode::VerifyFull,
            (Some(other), _) => {
                let known = "disable, allow, prefer, require, verify-ca or verify-full";
                return Err(format!("sslmode `{other}` is not {known}"));
            }
        };
        if system && mode != Mode::VerifyFull {
            return Err("sslrootcert=system needs sslmode=verify-full: anybody can get a certificate from there".into());
        }
        let folder = home.map(|home| home.join(".postgresql"));
        let in_folder = |name: &str| {
            folder
                .as_ref()
                .map(|folder| folder.join(name))
                .filter(|file| file.exists())
        };
        let root = if system {
            None
        } else {
            root.map(PathBuf::from).or_else(|| in_folder("root.crt"))
        };
        let cert = cert
            .map(PathBuf::from)
            .or_else(|| in_folder("postgresql.crt"));
        let key = key
            .map(PathBuf::from)
            .or_else(|| in_folder("postgresql.key"));
        let direct = params.get("sslnegotiation") == Some("direct");
        Ok(Self {
            mode,
            root,
            client: cert.zip(key),
            direct,
        })
    }

    /// What the driver has to insist on. A socket has no TLS, whatever is asked, as in libpq.
    pub(super) fn mode_for(&self, hosts: &[Host]) -> SslMode {
        let only_sockets =
            !hosts.is_empty() && hosts.iter().all(|host| matches!(host, Host::Unix(_)));
        match self.mode {
            _ if only_sockets => SslMode::Disable,
            Mode::Disable => SslMode::Disable,
            Mode::Prefer => SslMode::Prefer,
            Mode::Require | Mode::VerifyCa | Mode::VerifyFull => SslMode::Require,
        }
    }

    pub(super) fn connector(&self) -> Result<MakeRustlsConnect, String> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?;
        let config = match self.mode {
            Mode::VerifyFull => config.with_root_certificates(self.roots()?),
            Mode::VerifyCa => {
                let inner =
                    WebPkiServerVerifier::builder_with_provider(Arc::new(self.roots()?), provider)
                        .build();
                let inner = inner.map_err(|error| error.to_string())?;
                config
                    .dangerous()
                    .with_custom_certificate_verifier(Arc::new(AnyName(inner)))
            }
            Mode::Disable | Mode::Prefer | Mode::Require => config
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(Anybody(provider))),
        };
        let mut config = match &self.client {
            None => config.with_no_client_auth(),
            Some((cert, key)) => {
                let unreadable =
                    |file: &Path, why: &dyn std::fmt::Display| format!("{}: {why}", file.display());
                let chain = certificates(cert)?;
                let key_der =
                    PrivateKeyDer::from_pem_file(key).map_err(|error| unreadable(key, &error))?;
                config
                    .with_client_auth_cert(chain, key_der)
                    .map_err(|error| unreadable(cert, &error))?
            }
        };
        if self.direct {
            config.alpn_protocols = vec![b"postgresql".to_vec()];
        }
        Ok(MakeRustlsConnect::new(config))
    }

    fn roots(&self) -> Result<RootCertStore, String> {
        let mut roots = RootCertStore::empty();
        match &self.root {
            Some(file) => {
                for certificate in certificates(file)? {
                    roots
                        .add(certificate)
                        .map_err(|error| format!("{}: {error}", file.display()))?;
                }
            }
            None => {
                let found = rustls_native_certs::load_native_certs();
                roots.add_parsable_certificates(found.certs);
            }
        }
        if roots.is_empty() {
            return Err(
                "no trusted certificates: set sslrootcert to the file of your server's authority"
                    .into(),
            );
        }
        Ok(roots)
    }
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let read = CertificateDer::pem_file_iter(file).and_then(Iterator::collect);
    let certificates: Vec<_> = read.map_err(|error| format!("{}: {error}", file.display()))?;
    if certificates.is_empty() {
        Err(format!("{}: no certificate in it", file.display()))
    } else {
        Ok(certificates)
    }
}

/// `verify-ca`: a trusted authority signed it; whom it names does not matter.
#[derive(Debug)]
struct AnyName(Arc<WebPkiServerVerifier>);

/// `prefer`, `require`: encryption only. Nobody is authenticated, which is what these modes mean.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyName {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        // The chain is checked before the name, so a wrong name is the proof that the chain is right.
        match self
            .0
            .verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
        {
            Err(rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(
            message,
            cert,
            dss,
            &self.0.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(
            message,
            cert,
            dss,
            &self.0.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
