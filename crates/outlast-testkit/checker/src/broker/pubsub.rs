//! Google's emulator, by its HTTP: a subscription of the checker's own, and all that comes to it.

use std::{net::SocketAddr, time::Duration};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

use super::{ID, Message, decoded};

/// How long one answer may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// A witness of a topic.
#[derive(Clone, Debug)]
pub struct Witness {
    server: SocketAddr,
    subscription: String,
}

impl Witness {
    /// Begins to see what is published to a topic from now on.
    ///
    /// # Errors
    /// When there is no such topic.
    pub async fn of(server: SocketAddr, project: &str, topic: &str) -> Result<Self> {
        let subscription = format!("projects/{project}/subscriptions/witness-of-{topic}");
        let this = Self {
            server,
            subscription,
        };
        let wanted = json!({
            "topic": format!("projects/{project}/topics/{topic}"),
            "enableMessageOrdering": true,
            "ackDeadlineSeconds": 60,
        });
        this.ask("PUT", "", &wanted).await?;
        Ok(this)
    }

    /// All that has come; of each key in its order.
    ///
    /// # Errors
    /// When the server does not answer.
    pub async fn seen(&self) -> Result<Vec<Message>> {
        const EMPTY: usize = 3;
        let (mut all, mut empty) = (Vec::new(), 0);
        // One empty answer proves nothing.
        while empty < EMPTY {
            let some = json!({ "maxMessages": 1000, "returnImmediately": true });
            let came = self.ask("POST", ":pull", &some).await?;
            let came = came["receivedMessages"].as_array().cloned();
            let came = came.unwrap_or_default();
            if came.is_empty() {
                empty += 1;
                continue;
            }
            empty = 0;
            for one in &came {
                let message = &one["message"];
                let body = decoded(message["data"].as_str().unwrap_or_default())?;
                all.push(Message::new(message["attributes"][ID].as_str(), &body));
            }
            let ids: Vec<_> = came.iter().map(|one| &one["ackId"]).collect();
            self.ask("POST", ":acknowledge", &json!({ "ackIds": ids }))
                .await?;
        }
        Ok(all)
    }

    async fn ask(&self, method: &str, what: &str, body: &Value) -> Result<Value> {
        let path = format!("/v1/{}{what}", self.subscription);
        let body = body.to_string();
        let answer = timeout(PATIENCE, request(self.server, method, &path, &body)).await;
        let answer = answer.context("the emulator does not answer")?;
        let (status, body) = answer.with_context(|| path.clone())?;
        ensure!(
            status == 200,
            "{path}: {status} {}",
            String::from_utf8_lossy(&body)
        );
        Ok(serde_json::from_slice(&body)?)
    }
}

/// One request on a connection of its own. The emulator keeps it open, whatever it is told: so its end is counted.
async fn request(
    server: SocketAddr,
    method: &str,
    path: &str,
    body: &str,
) -> Result<(u16, Vec<u8>)> {
    let mut stream = TcpStream::connect(server).await?;
    let asked = format!(
        "{method} {path} HTTP/1.1\r\nhost: {server}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(asked.as_bytes()).await?;
    let (mut said, mut piece) = (Vec::new(), vec![0; 64 << 10]);
    loop {
        if let Some(answer) = whole(&said)? {
            return Ok(answer);
        }
        let read = stream.read(&mut piece).await?;
        ensure!(read > 0, "the answer has no end");
        said.extend_from_slice(&piece[..read]);
    }
}

/// Status and body of an answer, if all of it has come.
fn whole(said: &[u8]) -> Result<Option<(u16, Vec<u8>)>> {
    let Some(end) = said.windows(4).position(|four| four == b"\r\n\r\n") else {
        return Ok(None);
    };
    let head = std::str::from_utf8(&said[..end])?.to_ascii_lowercase();
    let status = head.split(' ').nth(1).context("a status")?.parse()?;
    let rest = &said[end + 4..];
    let header = |name: &str| {
        let mut lines = head.lines();
        lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':').map(str::trim))
    };
    if header("transfer-encoding") == Some("chunked") {
        return Ok(chunks(rest)?.map(|body| (status, body)));
    }
    let length: usize = header("content-length").unwrap_or("0").parse()?;
    Ok((rest.len() >= length).then(|| (status, rest[..length].to_vec())))
}

/// A body in pieces, each after a line with its length; none before the last one, which is empty.
fn chunks(mut rest: &[u8]) -> Result<Option<Vec<u8>>> {
    let mut body = Vec::new();
    loop {
        let Some(end) = rest.windows(2).position(|two| two == b"\r\n") else {
            return Ok(None);
        };
        let length = std::str::from_utf8(&rest[..end])?;
        let length = usize::from_str_radix(length.split(';').next().unwrap_or_default(), 16)?;
        if length == 0 {
            return Ok(Some(body));
        }
        let from = end + 2;
        if rest.len() < from + length + 2 {
            return Ok(None);
        }
        body.extend_from_slice(&rest[from..from + length]);
        rest = &rest[from + length + 2..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read_when_all_of_it_has_come() {
        let counted = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}";
        let pieces = b"HTTP/1.1 404 Not Found\r\ntransfer-encoding: chunked\r\n\r\n1\r\n{\r\n1;x\r\n}\r\n0\r\n\r\n";
        for (answer, status, last) in [(&counted[..], 200, 1), (pieces, 404, 5)] {
            let (all, part) = (whole(answer), whole(&answer[..answer.len() - last]));
            assert_eq!(all.expect("reads"), Some((status, b"{}".to_vec())));
            assert_eq!(part.expect("reads"), None);
        }
    }
}
