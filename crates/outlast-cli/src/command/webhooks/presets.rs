//! `outlast webhooks presets`: the providers whose webhooks are known.

use clap::Args;
use outlast_http::webhook::{Identity, KeyFormat, KeyKind, Preset, presets};
use serde::Serialize;

use crate::{args::Global, exit::Exit, out::Table, problem::Answer};

#[derive(Debug, Args)]
pub(crate) struct Presets {}

#[derive(Serialize)]
struct Known {
    name: &'static str,
    aliases: &'static [&'static str],
    key: &'static str,
    body_authenticity: &'static str,
    tolerance_s: Option<u64>,
    identity: &'static str,
    page: &'static str,
}

impl Presets {
    pub(crate) fn run(&self, global: &Global) -> Answer {
        let out = global.out();
        let all = presets().iter().map(Known::of);
        if out.json {
            out.objects(all)?;
            return Ok(Exit::Done);
        }
        let headings = [
            "PRESET",
            "KEY",
            "BODY PROVEN",
            "TOLERANCE",
            "IDENTITY",
            "ALSO",
        ];
        let mut table = Table::new(headings).whole(["PRESET"]);
        for known in all {
            let seconds = known.tolerance_s.map(|s| format!("{s} s"));
            table.row([
                known.name,
                known.key,
                known.body_authenticity,
                seconds.as_deref().unwrap_or("-"),
                known.identity,
                &known.aliases.join(", "),
            ]);
        }
        out.table(&table)?;
        Ok(Exit::Done)
    }
}

impl Known {
    fn of(preset: &Preset) -> Self {
        Self {
            name: preset.name,
            aliases: preset.aliases,
            key: key(preset.key),
            body_authenticity: preset.body_authenticity.word(),
            tolerance_s: preset.tolerance.map(|tolerance| tolerance.as_secs()),
            identity: match preset.identity {
                Identity::Signed(_) => "signed",
                Identity::Unsigned(_) => "unsigned",
                Identity::Digest => "digest",
            },
            page: preset.page,
        }
    }
}

fn key(kind: KeyKind) -> &'static str {
    match kind {
        KeyKind::Secret(KeyFormat::Text) => "secret",
        KeyKind::Secret(KeyFormat::Base64) => "secret, base64",
        KeyKind::Secret(KeyFormat::Hex) => "secret, hex",
        KeyKind::Secret(KeyFormat::Whsec) => "secret, whsec_",
        KeyKind::SecretOrPublic(_) => "secret, whsec_, or public key, whpk_",
        KeyKind::Public => "public key",
        KeyKind::Fetched => "fetched",
        KeyKind::None => "none: nothing is proven",
    }
}
