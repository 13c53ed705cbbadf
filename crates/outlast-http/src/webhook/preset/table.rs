//! The table of presets.

use std::{borrow::Cow, sync::LazyLock, time::Duration};

use super::{Authenticity, Handshake, Identity, Items, KeyKind, Preset, words::*};
use crate::webhook::{
    Algorithm, Encoding, Find, How, KeyFormat, Place, Scheme, Signed, Token, Unit,
};

/// Every provider that is known, in the order in which they were asked for.
pub fn presets() -> &'static [Preset] {
    static ALL: LazyLock<Vec<Preset>> = LazyLock::new(all);
    &ALL
}

fn all() -> Vec<Preset> {
    vec![
        Preset {
            name: "standard-webhooks",
            aliases: &["svix", "clerk", "resend"],
            scheme: Some(Scheme::Standard),
            key: KeyKind::SecretOrPublic(KeyFormat::Whsec),
            tolerance: FIVE_MINUTES,
            identity: Identity::Signed(Find::Delivery),
            event_type: Some(body("type")),
            page: "https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md",
            ..USUAL
        },
        Preset {
            name: "stripe",
            scheme: Some(fields("stripe-signature", Unit::Seconds, TIME_DOT_BODY)),
            tolerance: FIVE_MINUTES,
            identity: Identity::Signed(body("id")),
            event_type: Some(body("type")),
            occurred: Some((body("created"), Unit::Seconds)),
            page: "https://docs.stripe.com/webhooks",
            ..USUAL
        },
        Preset {
            name: "twilio",
            scheme: Some(Scheme::Twilio),
            identity: Identity::Unsigned(header("i-twilio-idempotency-token")),
            page: "https://www.twilio.com/docs/usage/webhooks/webhooks-security",
            ..USUAL
        },
        Preset {
            name: "sendgrid",
            scheme: Some(Scheme::Signed(Signed {
                time: Some((
                    header("x-twilio-email-event-webhook-timestamp"),
                    Unit::Seconds,
                )),
                ..signed(
                    in_header("x-twilio-email-event-webhook-signature", ""),
                    Encoding::Base64,
                    Algorithm::Public(How::EcdsaDer),
                    TIME_BODY,
                )
            })),
            key: KeyKind::Public,
            tolerance: TEN_MINUTES,
            items: Items::Array,
            identity: Identity::Signed(body("sg_event_id")),
            event_type: Some(body("event")),
            occurred: Some((body("timestamp"), Unit::Seconds)),
            page: "https://www.twilio.com/docs/sendgrid/for-developers/tracking-events/getting-started-event-webhook-security-features",
            ..USUAL
        },
        Preset {
            name: "github",
            scheme: Some(hmac(
                in_header("x-hub-signature-256", "sha256="),
                Encoding::Hex,
                SHA256,
            )),
            identity: Identity::Unsigned(header("x-github-delivery")),
            event_type: Some(header("x-github-event")),
            page: "https://docs.github.com/en/webhooks/using-webhooks/validating-webhook-deliveries",
            ..USUAL
        },
        Preset {
            name: "hmac",
            aliases: &["hmac-generic"],
            page: "https://datatracker.ietf.org/doc/html/rfc2104",
            ..USUAL
        },
        Preset {
            name: "convoy",
            aliases: &["convoy-advanced"],
            scheme: Some(fields("x-convoy-signature", Unit::Seconds, TIME_COMMA_BODY)),
            tolerance: FIVE_MINUTES,
            page: "https://www.getconvoy.io/docs/product-manual/signatures",
            ..USUAL
        },
        Preset {
            name: "google-pubsub-push",
            aliases: &["pubsub"],
            scheme: Some(Scheme::Token(Token::PubSub)),
            key: KeyKind::Fetched,
            body_authenticity: Authenticity::None,
            identity: Identity::Unsigned(body("message.messageId")),
            occurred: Some((body("message.publishTime"), Unit::Rfc3339)),
            page: "https://cloud.google.com/pubsub/docs/authenticate-push-subscriptions",
            ..USUAL
        },
        Preset {
            name: "workos",
            scheme: Some(fields("workos-signature", Unit::Millis, TIME_DOT_BODY)),
            tolerance: Some(Duration::from_mins(3)),
            identity: Identity::Signed(body("id")),
            event_type: Some(body("event")),
            occurred: Some((body("created_at"), Unit::Rfc3339)),
            page: "https://workos.com/docs/events/data-syncing/webhooks",
            ..USUAL
        },
        Preset {
            name: "docusign",
            scheme: Some(hmac(
                Place::Numbered {
                    name: Cow::Borrowed("x-docusign-signature-"),
                },
                Encoding::Base64,
                SHA256,
            )),
            event_type: Some(body("event")),
            occurred: Some((body("generatedDateTime"), Unit::Rfc3339)),
            page: "https://developers.docusign.com/platform/webhooks/connect/hmac/",
            ..USUAL
        },
        Preset {
            name: "dropbox-sign",
            aliases: &["hellosign"],
            scheme: Some(Scheme::Signed(signed(
                Place::Body {
                    path: Cow::Borrowed("event.event_hash"),
                },
                Encoding::Hex,
                SHA256,
                EVENT_TIME_TYPE,
            ))),
            body_authenticity: Authenticity::Partial,
            event_type: Some(body("event.event_type")),
            occurred: Some((body("event.event_time"), Unit::Seconds)),
            answer: Some("Hello API Event Received"),
            page: "https://developers.hellosign.com/docs/events/walkthrough/",
            ..USUAL
        },
        Preset {
            name: "pandadoc",
            scheme: Some(hmac(
                Place::Query {
                    name: Cow::Borrowed("signature"),
                },
                Encoding::Hex,
                SHA256,
            )),
            items: Items::Array,
            event_type: Some(body("event")),
            page: "https://developers.pandadoc.com/docs/webhook-verification",
            ..USUAL
        },
        Preset {
            name: "hubspot",
            aliases: &["hubspot-v3"],
            scheme: Some(Scheme::Signed(Signed {
                time: Some((header("x-hubspot-request-timestamp"), Unit::Millis)),
                ..signed(
                    in_header("x-hubspot-signature-v3", ""),
                    Encoding::Base64,
                    SHA256,
                    METHOD_URL_BODY_TIME,
                )
            })),
            tolerance: FIVE_MINUTES,
            items: Items::Array,
            // HubSpot says that an event's id alone may come twice.
            identity: Identity::Signed(Find::Joined(&["subscriptionId", "eventId", "occurredAt"])),
            event_type: Some(body("subscriptionType")),
            occurred: Some((body("occurredAt"), Unit::Millis)),
            page: "https://developers.hubspot.com/docs/guides/apps/authentication/validating-requests",
            ..USUAL
        },
        Preset {
            name: "slack",
            scheme: Some(Scheme::Signed(Signed {
                time: Some((header("x-slack-request-timestamp"), Unit::Seconds)),
                ..signed(
                    in_header("x-slack-signature", "v0="),
                    Encoding::Hex,
                    SHA256,
                    V0,
                )
            })),
            tolerance: FIVE_MINUTES,
            identity: Identity::Signed(body("event_id")),
            event_type: Some(body("event.type")),
            occurred: Some((body("event_time"), Unit::Seconds)),
            handshake: Some(Handshake::SlackChallenge),
            page: "https://docs.slack.dev/authentication/verifying-requests-from-slack",
            ..USUAL
        },
        Preset {
            name: "shopify",
            scheme: Some(hmac(
                in_header("x-shopify-hmac-sha256", ""),
                Encoding::Base64,
                SHA256,
            )),
            identity: Identity::Unsigned(header("x-shopify-webhook-id")),
            event_type: Some(header("x-shopify-topic")),
            page: "https://shopify.dev/docs/apps/build/webhooks/subscribe/https",
            ..USUAL
        },
        Preset {
            name: "plaid",
            scheme: Some(Scheme::Token(Token::Plaid)),
            key: KeyKind::Fetched,
            tolerance: FIVE_MINUTES,
            event_type: Some(Find::Joined(&["webhook_type", "webhook_code"])),
            page: "https://plaid.com/docs/api/webhooks/webhook-verification/",
            ..USUAL
        },
        Preset {
            name: "square",
            scheme: Some(Scheme::Signed(signed(
                in_header("x-square-hmacsha256-signature", ""),
                Encoding::Base64,
                SHA256,
                URL_BODY,
            ))),
            identity: Identity::Signed(body("event_id")),
            event_type: Some(body("type")),
            occurred: Some((body("created_at"), Unit::Rfc3339)),
            page: "https://developer.squareup.com/docs/webhooks/step3validate",
            ..USUAL
        },
        Preset {
            name: "adyen",
            aliases: &["adyen-standard"],
            scheme: Some(Scheme::Adyen),
            key: KeyKind::Secret(KeyFormat::Hex),
            body_authenticity: Authenticity::Partial,
            items: Items::Within("notificationItems", "NotificationRequestItem"),
            identity: Identity::Signed(Find::Joined(&["eventCode", "pspReference", "success"])),
            event_type: Some(body("eventCode")),
            occurred: Some((body("eventDate"), Unit::Rfc3339)),
            answer: Some("[accepted]"),
            page: "https://docs.adyen.com/development-resources/webhooks/secure-webhooks/verify-hmac-signatures",
            ..USUAL
        },
        Preset {
            name: "paypal",
            scheme: Some(Scheme::PayPal),
            key: KeyKind::Fetched,
            body_authenticity: Authenticity::Partial,
            identity: Identity::Unsigned(body("id")),
            event_type: Some(body("event_type")),
            occurred: Some((body("create_time"), Unit::Rfc3339)),
            page: "https://developer.paypal.com/api/rest/webhooks/rest/",
            ..USUAL
        },
        Preset {
            name: "linear",
            scheme: Some(Scheme::Signed(Signed {
                time: Some((body("webhookTimestamp"), Unit::Millis)),
                ..signed(
                    in_header("linear-signature", ""),
                    Encoding::Hex,
                    SHA256,
                    BODY,
                )
            })),
            tolerance: MINUTE,
            identity: Identity::Unsigned(header("linear-delivery")),
            event_type: Some(Find::Joined(&["type", "action"])),
            occurred: Some((body("createdAt"), Unit::Rfc3339)),
            page: "https://linear.app/developers/webhooks",
            ..USUAL
        },
        Preset {
            name: "intercom",
            scheme: Some(hmac(
                in_header("x-hub-signature", "sha1="),
                Encoding::Hex,
                SHA1,
            )),
            identity: Identity::Signed(body("id")),
            event_type: Some(body("topic")),
            occurred: Some((body("created_at"), Unit::Seconds)),
            page: "https://developers.intercom.com/docs/webhooks/setting-up-webhooks",
            ..USUAL
        },
        Preset {
            name: "zoom",
            scheme: Some(Scheme::Signed(Signed {
                time: Some((header("x-zm-request-timestamp"), Unit::Seconds)),
                ..signed(
                    in_header("x-zm-signature", "v0="),
                    Encoding::Hex,
                    SHA256,
                    V0,
                )
            })),
            tolerance: FIVE_MINUTES,
            event_type: Some(body("event")),
            occurred: Some((body("event_ts"), Unit::Millis)),
            handshake: Some(Handshake::ZoomToken),
            page: "https://developers.zoom.us/docs/api/webhooks/",
            ..USUAL
        },
        Preset {
            name: "discord",
            scheme: Some(Scheme::Signed(Signed {
                time: Some((header("x-signature-timestamp"), Unit::Seconds)),
                ..signed(
                    in_header("x-signature-ed25519", ""),
                    Encoding::Hex,
                    Algorithm::Public(How::Ed25519),
                    TIME_BODY,
                )
            })),
            key: KeyKind::Public,
            tolerance: FIVE_MINUTES,
            identity: Identity::Signed(body("id")),
            event_type: Some(body("type")),
            handshake: Some(Handshake::DiscordPing),
            page: "https://discord.com/developers/docs/interactions/overview",
            ..USUAL
        },
        Preset {
            name: "mailgun",
            scheme: Some(Scheme::Signed(Signed {
                time: Some((body("signature.timestamp"), Unit::Seconds)),
                ..signed(
                    Place::Body {
                        path: Cow::Borrowed("signature.signature"),
                    },
                    Encoding::Hex,
                    SHA256,
                    TIME_TOKEN,
                )
            })),
            body_authenticity: Authenticity::Partial,
            tolerance: FIVE_MINUTES,
            identity: Identity::Unsigned(body("event-data.id")),
            event_type: Some(body("event-data.event")),
            page: "https://documentation.mailgun.com/docs/mailgun/user-manual/webhooks/securing-webhooks",
            ..USUAL
        },
        Preset {
            name: "aws-sns",
            aliases: &["sns"],
            scheme: Some(Scheme::Sns),
            key: KeyKind::Fetched,
            // The attributes of a message are not signed.
            body_authenticity: Authenticity::Partial,
            identity: Identity::Signed(body("MessageId")),
            event_type: Some(body("Type")),
            occurred: Some((body("Timestamp"), Unit::Rfc3339)),
            handshake: Some(Handshake::SnsConfirmation),
            page: "https://docs.aws.amazon.com/sns/latest/dg/sns-verify-signature-of-message.html",
            ..USUAL
        },
        Preset {
            name: "meta",
            aliases: &["facebook", "whatsapp"],
            scheme: Some(hmac(
                in_header("x-hub-signature-256", "sha256="),
                Encoding::Hex,
                SHA256,
            )),
            event_type: Some(body("object")),
            handshake: Some(Handshake::MetaGet),
            page: "https://developers.facebook.com/docs/graph-api/webhooks/getting-started",
            ..USUAL
        },
        Preset {
            name: "none",
            scheme: Some(Scheme::None),
            key: KeyKind::None,
            body_authenticity: Authenticity::None,
            page: "https://datatracker.ietf.org/doc/html/rfc9110",
            ..USUAL
        },
    ]
}
