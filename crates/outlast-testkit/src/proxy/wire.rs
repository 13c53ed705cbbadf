//! As much of PostgreSQL's protocol (version 3) as it takes to see what a client makes the server run.

use std::collections::HashMap;
use std::io;

use tokio::io::{AsyncRead, AsyncReadExt};

/// Longer than any honest message: a sign that we lost the thread.
const LENGTH_MAX: usize = 1 << 30;

/// One message, as it came.
#[derive(Debug)]
pub(super) struct Message {
    /// Its type; 0 for the first messages of a connection, which have none.
    pub(super) tag: u8,
    pub(super) bytes: Vec<u8>,
}

impl Message {
    /// None at the end of the stream.
    pub(super) async fn read(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<Self>> {
        match stream.read_u8().await {
            Ok(tag) => Self::rest(stream, tag, vec![tag]).await.map(Some),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The first message of a connection.
    pub(super) async fn read_first(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Self> {
        Self::rest(stream, 0, Vec::new()).await
    }

    async fn rest(
        stream: &mut (impl AsyncRead + Unpin),
        tag: u8,
        mut bytes: Vec<u8>,
    ) -> io::Result<Self> {
        let length = stream.read_u32().await?;
        let body = usize::try_from(length)
            .ok()
            .and_then(|length| length.checked_sub(4))
            .filter(|body| *body < LENGTH_MAX);
        let body = body.ok_or_else(|| io::Error::other(format!("a message of {length} bytes")))?;
        bytes.extend_from_slice(&length.to_be_bytes());
        let start = bytes.len();
        bytes.resize(start + body, 0);
        stream.read_exact(&mut bytes[start..]).await?;
        Ok(Self { tag, bytes })
    }

    pub(super) fn body(&self) -> &[u8] {
        &self.bytes[if self.tag == 0 { 4 } else { 5 }..]
    }

    /// What the first message asks for.
    pub(super) fn first(&self) -> First {
        match self.body().get(..4) {
            Some([0x04, 0xd2, 0x16, 0x2f | 0x30]) => First::Encryption,
            Some([0x04, 0xd2, 0x16, 0x2e]) => First::Cancel,
            _ => First::Startup,
        }
    }

    /// The tag of a CommandComplete, such as `COMMIT`.
    pub(super) fn command_tag(&self) -> String {
        string(self.body()).0
    }

    /// The SQLSTATE of an ErrorResponse.
    pub(super) fn sqlstate(&self) -> String {
        let fields = self.body().split(|byte| *byte == 0);
        let code = fields.filter_map(|field| field.strip_prefix(b"C")).next();
        String::from_utf8_lossy(code.unwrap_or_default()).into_owned()
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum First {
    /// SSLRequest or GSSENCRequest.
    Encryption,
    Cancel,
    Startup,
}

/// The statements and portals of one connection.
#[derive(Debug, Default)]
pub(super) struct Statements {
    prepared: HashMap<String, String>,
    portals: HashMap<String, String>,
}

impl Statements {
    /// Follows what the client sends; the statement that this message makes the server run, if any.
    pub(super) fn follow(&mut self, message: &Message) -> Option<String> {
        let (first, rest) = match message.tag {
            b'Q' | b'P' | b'B' | b'E' => string(message.body()),
            b'C' => string(message.body().get(1..).unwrap_or_default()),
            _ => return None,
        };
        match message.tag {
            b'Q' => return Some(first),
            b'P' => {
                self.prepared.insert(first, string(rest).0);
            }
            b'B' => {
                let text = self
                    .prepared
                    .get(&string(rest).0)
                    .cloned()
                    .unwrap_or_default();
                self.portals.insert(first, text);
            }
            b'E' => return self.portals.get(&first).cloned(),
            _ => {
                let closed = if message.body().first() == Some(&b'S') {
                    &mut self.prepared
                } else {
                    &mut self.portals
                };
                closed.remove(&first);
            }
        }
        None
    }
}

/// Does this end a transaction as COMMIT does? In a text of several statements the last one counts.
pub(super) fn is_commit(text: &str) -> bool {
    let mut statements = text
        .rsplit(';')
        .map(str::trim)
        .filter(|statement| !statement.is_empty());
    let last = statements.next().unwrap_or_default().to_ascii_lowercase();
    let words: Vec<&str> = last.split_whitespace().collect();
    let ["commit" | "end", rest @ ..] = words.as_slice() else {
        return false;
    };
    let rest = if let ["work" | "transaction", rest @ ..] = rest {
        rest
    } else {
        rest
    };
    matches!(rest, [] | ["and", "chain"] | ["and", "no", "chain"])
}

/// A text up to its ending zero, and what follows.
fn string(bytes: &[u8]) -> (String, &[u8]) {
    let end = bytes
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(bytes.len());
    let rest = bytes.get(end + 1..).unwrap_or_default();
    (String::from_utf8_lossy(&bytes[..end]).into_owned(), rest)
}

#[cfg(test)]
mod tests {
    use super::is_commit;

    #[test]
    fn commit_is_known_in_all_its_spellings_and_nothing_else_is() {
        for text in [
            "COMMIT",
            "commit;",
            " Commit Work ",
            "END",
            "end transaction",
            "COMMIT AND CHAIN",
            "begin; select 1; commit;",
        ] {
            assert!(is_commit(text), "{text}");
        }
        for text in [
            "",
            "commit prepared 'x'",
            "rollback",
            "select 'commit'",
            "do $$ begin null; end $$",
            "commit; select 1",
        ] {
            assert!(!is_commit(text), "{text}");
        }
    }
}
