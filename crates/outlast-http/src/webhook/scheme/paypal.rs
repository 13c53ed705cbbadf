//! PayPal: the id and time of the transmission, the id of the webhook, and a CRC-32 of the body, signed by the key of a
//! certificate. A CRC is no hash: other bodies with the same one are easily made, so the body is only partly proven.

use super::{Encoding, Known, Proof};
use crate::webhook::{CertHost, How, Refused, Unit, request::Seen};

pub(super) fn prove(seen: &Seen<'_>, known: &Known<'_>) -> Result<Proof, Refused> {
    let certificate = CertHost::PayPal.allows(seen.text("paypal-cert-url")?);
    certificate.ok_or(Refused::UntrustedCertUrl)?;
    if seen.text("paypal-auth-algo")? != "SHA256withRSA" {
        return Err(Refused::BadAlgorithm);
    }
    let id = seen.text("paypal-transmission-id")?;
    let time = seen.text("paypal-transmission-time")?;
    let at = Unit::Rfc3339.read(time).ok_or(Refused::BadTimestamp)?;
    known.is_in_time(at)?;
    let signature = seen.text("paypal-transmission-sig")?;
    if signature.is_empty() {
        return Err(Refused::EmptySignature);
    }
    let signature = Encoding::Base64.decode(signature.as_bytes())?;
    let webhook = known.settings.webhook_id.as_deref().unwrap_or_default();
    let sum = crc32(seen.request.body);
    let message = format!("{id}|{time}|{webhook}|{sum}");
    let key = known.signer(message.as_bytes(), How::RsaSha256, &signature)?;
    Ok(Proof {
        key,
        at: Some(at),
        delivery: Some(id.to_owned()),
    })
}

/// The CRC of Ethernet, gzip and PNG.
fn crc32(bytes: &[u8]) -> u32 {
    const TABLE: [u32; 256] = table();
    let step = |sum: u32, byte: &u8| {
        let [low, ..] = sum.to_le_bytes();
        TABLE[usize::from(low ^ byte)] ^ (sum >> 8)
    };
    !bytes.iter().fold(!0, step)
}

const fn table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut index = 0;
    while index < 256 {
        let mut sum = index as u32;
        let mut bit = 0;
        while bit < 8 {
            sum = match sum & 1 {
                1 => 0xedb8_8320 ^ (sum >> 1),
                _ => sum >> 1,
            };
            bit += 1;
        }
        table[index] = sum;
        index += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_the_usual_one() {
        assert_eq!(crc32(b""), 0);
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
    }
}
