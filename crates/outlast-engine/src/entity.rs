//! Entities by the handle: marked as changed or deleted, in the caller's transaction.
//!
//! The statements are `outlast_postgres::entity`; what converges is `worker`, `handler/entity` and `run/job`.

use outlast_core::{Entity, codec};
use outlast_postgres::{
    Error,
    entity::{self, Deleted, Mark},
    event::Body,
    tx::Tx,
};

use crate::{
    crash::{self, Point},
    enqueue::check_name,
    outlast::{Encoded, Outlast, to_json},
    run::wake,
};

impl Outlast {
    /// Marks an entity as changed in your transaction: it was created, changed, or is to be looked at again.
    ///
    /// When it returns, the mark is a row of your transaction: durable when that commits, gone when it does not. From then on the
    /// reconciler runs until it has returned `Ok` for it. Marks that wait are converged together; one that commits while a convergence
    /// runs brings about another one. Marks are only inserted: transactions that mark the same entities never wait for each other.
    ///
    /// ```no_run
    /// # use outlast_core::Entity;
    /// # use outlast_engine::Outlast;
    /// # use serde::{Deserialize, Serialize};
    /// # #[derive(Serialize, Deserialize)] struct Membership { chat: i64, user: i64 }
    /// # impl Entity for Membership {
    /// #     const NAME: &'static str = "chat_membership";
    /// #     type Refs = String;
    /// #     fn key(&self) -> String { format!("{}/{}", self.chat, self.user) }
    /// # }
    /// # async fn f(client: &mut tokio_postgres::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let outlast = Outlast::new();
    /// let mut tx = client.transaction().await?;
    /// tx.execute("update member set role = 'admin' where chat = 7 and person = 3", &[]).await?;
    /// outlast.changed(&mut tx, &Membership { chat: 7, user: 3 }).await?;
    /// tx.commit().await?;                       // both are there now, or neither
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Bad input leaves your transaction usable, with nothing written: [`Error::BadName`] (name, key, tenant), [`Error::TooLarge`] (a value of
    /// more than 64 KiB), [`Error::BadPayload`]. After [`Error::Database`] PostgreSQL takes only a rollback.
    pub async fn changed<E: Entity>(&self, tx: &mut dyn Tx, entity: &E) -> Result<(), Error> {
        self.mark(tx, entity, None).await
    }

    /// Marks an entity as deleted in your transaction, with what its provider calls it: your row goes, and these stay until they have been
    /// taken away there.
    ///
    /// Each distinct value of `refs` is handed to the reconciler until it has returned `Ok` for it
    /// ([`is_deletion`](crate::Attempt::is_deletion)), also where the entity was changed or created again since. If you do not know the
    /// refs, because nothing was made there yet or because only [`keep`](crate::Attempt::keep) knows them, say [`Outlast::changed`]: the
    /// reconciler finds no row.
    ///
    /// ```no_run
    /// # use outlast_core::Entity;
    /// # use outlast_engine::Outlast;
    /// # use serde::{Deserialize, Serialize};
    /// # #[derive(Serialize, Deserialize)] struct Membership { chat: i64, user: i64 }
    /// # impl Entity for Membership {
    /// #     const NAME: &'static str = "chat_membership";
    /// #     type Refs = String;
    /// #     fn key(&self) -> String { format!("{}/{}", self.chat, self.user) }
    /// # }
    /// # async fn f(client: &mut tokio_postgres::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let outlast = Outlast::new();
    /// let mut tx = client.transaction().await?;
    /// let gone = tx.query_one("delete from member where chat = 7 and person = 3 returning sid", &[]).await?;
    /// outlast.deleted(&mut tx, &Membership { chat: 7, user: 3 }, &gone.get(0)).await?;
    /// tx.commit().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`Outlast::changed`]; [`Error::TooLarge`] also for refs of more than 16 KiB.
    pub async fn deleted<E: Entity>(
        &self,
        tx: &mut dyn Tx,
        entity: &E,
        refs: &E::Refs,
    ) -> Result<(), Error> {
        let refs = to_json(refs)?;
        self.mark(tx, entity, Some(refs)).await
    }

    async fn mark<E: Entity>(
        &self,
        tx: &mut dyn Tx,
        entity: &E,
        refs: Option<String>,
    ) -> Result<(), Error> {
        check_name(E::NAME)?;
        let (json, key, exclusive) = (to_json(entity)?, entity.key(), entity.exclusive());
        let about = codec::About::new(E::NAME, E::VERSION, &self.tenant, Some(&key));
        let (mut encoded, mut encoded_refs) = (None, None);
        if let Some(codec) = &self.codec {
            // What no reader could be trusted with is found before it cannot be seen any more.
            entity::check_json(E::NAME, &json)?;
            encoded = Encoded::of(codec.as_ref(), &about, &json, false)?;
            if let Some(refs) = &refs {
                entity::check_refs(E::NAME, refs.as_bytes())?;
                let about = of_refs(E::NAME, &self.tenant, Some(&key));
                encoded_refs = Encoded::of(codec.as_ref(), &about, refs, true)?;
            }
        }
        let body = match &encoded {
            Some(encoded) => Body::Bytes {
                bytes: &encoded.bytes,
                content_type: "application/json",
            },
            None => Body::Json(&json),
        };
        let cause = self.cause(None);
        let mark = Mark {
            schema: self.in_schema()?,
            tenant: &self.tenant,
            exclusive: exclusive.as_deref(),
            actor: self.actor.as_deref(),
            correlation_id: cause.correlation,
            causation_id: cause.causation,
            traceparent: cause.traceparent,
            codec_key: encoded.as_ref().map(|encoded| encoded.key.as_str()),
            ..Mark::new(E::NAME, E::VERSION, body, &key)
        };
        let deleted = refs.as_ref().map(|refs| match &encoded_refs {
            Some(encoded) => Deleted {
                refs: &encoded.bytes,
                codec_key: Some(&encoded.key),
                digest: encoded.digest.as_deref(),
            },
            None => Deleted {
                refs: refs.as_bytes(),
                codec_key: None,
                digest: None,
            },
        });
        let marked = match &deleted {
            Some(deleted) => entity::deleted(tx, &mark, deleted).await,
            None => entity::changed(tx, &mark).await,
        };
        crash::at(Point::Emitted);
        wake::nudge();
        marked
    }
}

/// What a codec is told of refs: they have no version, and one that changed must not make them unreadable.
pub(crate) fn of_refs<'a>(
    name: &'a str,
    tenant: &'a str,
    key: Option<&'a str>,
) -> codec::About<'a> {
    codec::About::new(name, 1, tenant, key)
}
