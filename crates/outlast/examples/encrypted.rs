//! Payloads encrypted with a key for each tenant; destroying the key erases all that was ever stored about him.
//!
//! `cargo run --example encrypted`, with `OUTLAST_DATABASE_URL` naming a migrated database (`outlast dev` gives one).

use std::{
    collections::HashMap,
    error::Error,
    sync::{Arc, Mutex, PoisonError},
};

use chacha20poly1305::{
    Key, KeyInit, XChaCha20Poly1305, XNonce,
    aead::{Aead, Generate, Payload},
};
use hmac::{Hmac, Mac};
use outlast::{
    Attempt, Codec, CodecError, Consumer, Event, Failure, Outlast,
    codec::{About, Decoding, Encoded},
};
use serde::{Deserialize, Serialize};
use sha2::Sha256;

/// The keys of all tenants. Here they live in memory; in earnest they live in a key service, outside of the database
/// and of its backups, and only a cache of them is here.
#[derive(Debug, Default)]
pub(crate) struct PerTenant {
    keys: Mutex<HashMap<String, State>>,
}

#[derive(Clone, Debug)]
enum State {
    Here(Key),
    Away,
    Destroyed,
}

impl PerTenant {
    /// Destroys a tenant's key: from now on nothing of his can be read, wherever a copy of it lies.
    pub(crate) fn erase(&self, tenant: &str) {
        self.set(tenant, State::Destroyed);
    }

    /// As if the key service did not answer; answers the key, to bring it back.
    #[allow(dead_code, reason = "the test of this example uses it")]
    pub(crate) fn lose(&self, tenant: &str) -> Option<Key> {
        match self.set(tenant, State::Away) {
            Some(State::Here(key)) => Some(key),
            _ => None,
        }
    }

    /// The key service answers again.
    #[allow(dead_code, reason = "the test of this example uses it")]
    pub(crate) fn find(&self, tenant: &str, key: Key) {
        self.set(tenant, State::Here(key));
    }

    fn set(&self, tenant: &str, state: State) -> Option<State> {
        let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        keys.insert(tenant.to_owned(), state)
    }

    fn key(&self, tenant: &str) -> Result<Key, CodecError> {
        let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        let state = keys
            .entry(tenant.to_owned())
            .or_insert_with(|| State::Here(Key::generate()));
        match state {
            State::Here(key) => Ok(*key),
            State::Away => Err(CodecError::Unavailable("no answer".into())),
            State::Destroyed => Err(CodecError::Erased),
        }
    }
}

/// What the ciphertext is bound to: put under another type, tenant or key it does not decode.
fn bound(about: &About<'_>) -> Vec<u8> {
    let key = about.key.unwrap_or_default();
    format!("{}\n{}\n{}\n{key}", about.name, about.version, about.tenant).into_bytes()
}

impl Codec for PerTenant {
    fn encode(&self, about: &About<'_>, plain: &[u8]) -> Result<Option<Encoded>, CodecError> {
        let cipher = XChaCha20Poly1305::new(&self.key(about.tenant)?);
        let nonce = XNonce::generate();
        let sealed = Payload {
            msg: plain,
            aad: &bound(about),
        };
        let sealed = cipher.encrypt(&nonce, sealed);
        let sealed = sealed.map_err(|why| CodecError::Unreadable(why.to_string()))?;
        Ok(Some(Encoded {
            key: format!("tenant/{}", about.tenant),
            bytes: [nonce.as_slice(), &sealed].concat(),
        }))
    }

    fn decode<'a>(&'a self, about: &'a About<'a>, key: &'a str, bytes: &'a [u8]) -> Decoding<'a> {
        Box::pin(async move {
            let unreadable = || CodecError::Unreadable(format!("not made with {key}"));
            let tenant = key.strip_prefix("tenant/").ok_or_else(unreadable)?;
            let cipher = XChaCha20Poly1305::new(&self.key(tenant)?);
            let (nonce, sealed) = bytes.split_at_checked(24).ok_or_else(unreadable)?;
            let nonce = XNonce::try_from(nonce).map_err(|_| unreadable())?;
            let aad = bound(about);
            let sealed = Payload {
                msg: sealed,
                aad: &aad,
            };
            cipher.decrypt(&nonce, sealed).map_err(|_| unreadable())
        })
    }

    fn digest(&self, about: &About<'_>, plain: &[u8]) -> Result<Vec<u8>, CodecError> {
        // Under the tenant's own key, so that nobody can check a guess after it is gone. Whoever rotates keys keeps a
        // secret for this that is not rotated.
        let key = self.key(about.tenant)?;
        let mut mac = <Hmac<Sha256> as hmac::KeyInit>::new_from_slice(&key)
            .map_err(|why| CodecError::Unreadable(why.to_string()))?;
        mac.update(b"dedup");
        mac.update(&bound(about));
        mac.update(plain);
        Ok(mac.finalize().into_bytes().to_vec())
    }
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct PatientAdmitted {
    pub(crate) name: String,
    pub(crate) reason: String,
}

impl Event for PatientAdmitted {
    const NAME: &'static str = "patient.admitted";
}

async fn tell_the_ward(_: (), event: Attempt<PatientAdmitted>) -> Result<(), Failure> {
    println!("{} comes because of {}", event.name, event.reason);
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let keys = Arc::new(PerTenant::default());
    let outlast = Outlast::new().codec(keys.clone());
    let url = std::env::var("OUTLAST_DATABASE_URL")?;
    let (mut client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await?;
    tokio::spawn(connection);
    let mut tx = client.transaction().await?;
    let event = PatientAdmitted {
        name: "Ada".into(),
        reason: "a broken arm".into(),
    };
    outlast.tenant("st-mary").emit(&mut tx, &event).await?;
    outlast.tenant("st-john").emit(&mut tx, &event).await?;
    tx.commit().await?;
    // Of him nobody reads anything any more: his event is completed as skipped.
    keys.erase("st-john");
    let ward = Consumer::new("ward")
        .from(outlast::Start::Earliest)
        .on(tell_the_ward);
    Ok(outlast.worker(()).consumer(ward).run().await?)
}
