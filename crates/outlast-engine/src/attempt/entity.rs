//! What an attempt at an entity knows besides, and what it keeps.

use bytes::Bytes;
use outlast_core::{CodecError, Entity, Failure, codec};
use outlast_postgres::store::Refs;

use super::{Attempt, Shape, Unread, odd};
use crate::{
    entity::of_refs,
    handler::{Delivery, around},
    outlast::{Encoded, to_json},
    run::keep::{Keeper, ToKeep},
};

/// What the runs of one claim have been told so far.
#[derive(Debug, Default)]
pub(crate) struct Told {
    /// The refs that the last run for a deletion was told, as JSON.
    last: Option<serde_json::Value>,
    /// Those that are done.
    gone: Vec<serde_json::Value>,
}

impl Told {
    /// The last run for a deletion is recorded as done.
    pub(crate) fn is_gone(&mut self) {
        self.gone.extend(self.last.take());
    }
}

/// What a provider calls an entity, as one run is told it.
pub(super) struct Known {
    /// Typed.
    refs: Box<dyn std::any::Any + Send + Sync>,
    /// As JSON.
    plain: Bytes,
}

impl<E: Entity> Attempt<E> {
    /// What the provider calls it, as far as we know: of a [deletion](Attempt::is_deletion) what
    /// [`deleted`](crate::Outlast::deleted) was told, else what was [kept](Attempt::keep) last. Without either it is unknown, which is
    /// no proof that the provider does not have it.
    pub fn refs(&self) -> Option<&E::Refs> {
        self.known.as_ref()?.refs.downcast_ref()
    }

    /// Whether this run is to clean up after [`deleted`](crate::Outlast::deleted): it is handed out with those
    /// [`refs`](Attempt::refs) until it has returned `Ok`, whatever was changed since. What they name is to go, also where your row is there
    /// again; a run for the entity itself follows. Whoever goes on with it instead says so by [`keep`](Attempt::keep).
    pub fn is_deletion(&self) -> bool {
        self.delivery.tombstone.is_some()
    }

    /// Keeps what the provider calls it: call it right after what has made it there. Durable when it returns `Ok`, whatever becomes of this
    /// try: the next one sees it by [`refs`](Attempt::refs). To keep again what is kept costs nothing.
    ///
    /// It is carried to its end even if you drop the future.
    ///
    /// # Errors
    /// With the refs in its reason, so that what was just made is not forgotten: the lease was lost, or the database did not answer as
    /// long as it held. Then they are evidence and an incident, which a person clears up. Return the failure as it is. It is permanent,
    /// and nothing is written, where they cannot be JSON or have more than 16 KiB. With a codec no error shows them; nothing is written
    /// either where it cannot encode them.
    pub async fn keep(&self, refs: E::Refs) -> Result<(), Failure> {
        let json = to_json(&refs)
            .map_err(|why| Failure::permanent(format_args!("refs were not kept: {why}")))?;
        if self.is_kept(&json) {
            return Ok(());
        }
        // Invariant: with a codec nothing of them is stored plain, also not in the reason of a failure.
        let shown = match &self.delivery.codec {
            Some(_) => "(not shown: there is a codec)",
            None => json.as_str(),
        };
        let refused = |why: outlast_postgres::Error| {
            let text = format!("refs {shown} were not kept: {why}");
            match why.is_transient() {
                // Something was made there, and the next try does not know of it.
                true => Failure::unknown(text),
                false => Failure::permanent(text),
            }
        };
        outlast_postgres::entity::check_refs(E::NAME, json.as_bytes()).map_err(refused)?;
        let encoded = match &self.delivery.codec {
            Some(codec) => {
                Encoded::of(codec.as_ref(), &self.coded(), &json, false).map_err(refused)?
            }
            None => None,
        };
        // What was just made is kept, also by a codec that cannot say what is the same.
        let codec = self.delivery.codec.as_ref();
        let digest = codec.and_then(|codec| codec.digest(&self.coded(), json.as_bytes()).ok());
        let what = match encoded {
            Some(encoded) => ToKeep {
                shown: format!("(encoded with key {})", encoded.key),
                refs: Some(Refs {
                    bytes: encoded.bytes.into(),
                    codec_key: Some(encoded.key),
                }),
                digest,
            },
            None => ToKeep {
                shown: json.clone(),
                refs: Some(Refs {
                    bytes: json.into(),
                    codec_key: None,
                }),
                digest: None,
            },
        };
        self.record(what).await
    }

    /// Forgets what was kept: call it after what was there has been taken away, so that the next run does not go on with it. The refs of a
    /// [deletion](Attempt::is_deletion) are forgotten by its `Ok`; there this does nothing.
    ///
    /// # Errors
    /// As [`keep`](Attempt::keep).
    pub async fn forget(&self) -> Result<(), Failure> {
        let nothing = self.known.is_none() && !self.has_kept();
        if self.is_deletion() || nothing {
            return Ok(());
        }
        let what = ToKeep {
            refs: None,
            digest: None,
            shown: "(none)".to_owned(),
        };
        self.record(what).await
    }

    /// A number for providers that refuse an older writer: of two convergences of one entity the later has the higher one, also after
    /// a restore of the database.
    pub fn fence_number(&self) -> u64 {
        let entity = self.delivery.event.entity.as_ref();
        entity.map_or(0, |entity| entity.fence)
    }

    async fn record(&self, what: ToKeep) -> Result<(), Failure> {
        match &self.delivery.keeper {
            Some(keeper) => keeper.keep(self.id(), what).await,
            None => Err(Failure::unknown(format_args!(
                "refs {} were not kept: there are no tables here",
                what.shown
            ))),
        }
    }

    /// Whether anything was kept or forgotten under this claim.
    fn has_kept(&self) -> bool {
        let keeper = self.delivery.keeper.as_ref();
        keeper.is_some_and(|keeper| keeper.kept().is_some())
    }

    /// What is kept by now.
    fn kept(&self) -> Option<Refs> {
        let keeper = self.delivery.keeper.as_ref();
        match keeper.and_then(Keeper::kept) {
            Some(kept) => kept,
            None => self.delivery.event.entity.as_ref()?.refs.clone(),
        }
    }

    /// Whether these are kept already.
    fn is_kept(&self, json: &str) -> bool {
        let known = self.known.as_ref();
        let same = known.is_some_and(|known| known.plain == json.as_bytes());
        same && !self.is_deletion() && !self.has_kept()
    }

    fn coded(&self) -> codec::About<'_> {
        about::<E>(&self.delivery)
    }

    /// Reads the value and what is known of it. The user's own code runs here: its panics are failures.
    pub(crate) async fn told(delivery: Delivery, told: &mut Told) -> Result<Self, Failure> {
        let mut attempt = match Self::open(delivery, Shape::of_entity()).await {
            Ok(attempt) => attempt,
            Err(Unread::Failed(failure)) => return Err(failure),
            // Its provider may still have it.
            Err(Unread::Erased) => return Err(erased("the value")),
        };
        let refs = match &attempt.delivery.tombstone {
            Some(tombstone) => Some(tombstone.refs.clone()),
            None => attempt.kept(),
        };
        let Some(refs) = refs else { return Ok(attempt) };
        let plain = plain::<E>(&attempt.delivery, &refs).await?;
        let read = || {
            let is_secret = attempt.delivery.codec.is_some();
            let unreadable = |why: serde_json::Error| {
                let why = odd(&why, is_secret);
                Failure::permanent(format_args!("unreadable: refs of {}: {why}", E::NAME))
            };
            let json: serde_json::Value = serde_json::from_slice(&plain).map_err(unreadable)?;
            let refs: E::Refs = serde_json::from_slice(&plain).map_err(unreadable)?;
            Ok((json, refs))
        };
        let (json, refs) = around::catch(read)?;
        if attempt.is_deletion() {
            told.last = Some(json);
        } else if !attempt.has_kept() && told.gone.contains(&json) {
            // They went with the deletion.
            return Ok(attempt);
        }
        attempt.known = Some(Known {
            refs: Box::new(refs),
            plain,
        });
        Ok(attempt)
    }
}

/// The plain JSON of refs.
async fn plain<E: Entity>(delivery: &Delivery, refs: &Refs) -> Result<Bytes, Failure> {
    let Some(key) = &refs.codec_key else {
        return Ok(refs.bytes.clone());
    };
    let Some(codec) = &delivery.codec else {
        return Err(Failure::permanent(format_args!(
            "unreadable: refs of {} are encrypted with key {key}, and this worker has no codec: give it the one that they were kept with",
            E::NAME
        )));
    };
    let about = about::<E>(delivery);
    let decoded =
        around::caught(async { Ok(codec.decode(&about, key, &refs.bytes).await) }).await?;
    decoded.map(Bytes::from).map_err(|why| match why {
        CodecError::Erased => erased("its refs"),
        why @ CodecError::Unavailable(_) => Failure::retry(why),
        why => Failure::permanent(format_args!(
            "unreadable: decode refs of {} with key {key}: {why}",
            E::NAME
        )),
    })
}

fn about<E: Entity>(delivery: &Delivery) -> codec::About<'_> {
    let event = &delivery.event;
    of_refs(E::NAME, &event.tenant, event.key.as_deref())
}

/// Completing it would say that the provider has nothing any more, which nobody knows.
fn erased(what: &str) -> Failure {
    Failure::permanent(format_args!(
        "erased: the key of {what} was destroyed, so no provider can be told; look there by hand"
    ))
}
