//! NATS: one connection, one question at a time.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
    time::timeout,
};

use super::{ID, Message, decoded};

/// How long one answer may take.
const PATIENCE: Duration = Duration::from_secs(10);
const INBOX: &str = "_INBOX.checker";

/// A connection to a server.
#[derive(Debug)]
pub struct Nats(BufReader<TcpStream>);

impl Nats {
    /// Connects to `nats://HOST:PORT`.
    ///
    /// # Errors
    /// When nobody is there, or it is no NATS.
    pub async fn connect(url: &str) -> Result<Self> {
        let address = url.trim_start_matches("nats://");
        let stream = TcpStream::connect(address).await;
        let mut this = Self(BufReader::new(stream.context(address.to_owned())?));
        let hello = this.line().await?;
        ensure!(hello.starts_with("INFO "), "no NATS: {hello}");
        let said = format!(
            "CONNECT {{\"verbose\":false,\"pedantic\":false,\"lang\":\"checker\",\"version\":\"0\"}}\r\nSUB {INBOX} 1\r\n"
        );
        this.0.write_all(said.as_bytes()).await?;
        Ok(this)
    }

    /// Every message of a stream, in its order.
    ///
    /// # Errors
    /// When there is no such stream, or it does not answer.
    pub async fn stream(&mut self, name: &str) -> Result<Vec<Message>> {
        let info = self.ask(&format!("STREAM.INFO.{name}"), &json!({})).await?;
        let state = |what: &str| info["state"][what].as_u64().context(info.to_string());
        let (first, last) = (state("first_seq")?, state("last_seq")?);
        let mut all = Vec::new();
        for seq in first.max(1)..=last {
            let asked = json!({ "seq": seq });
            let answer = self.ask(&format!("STREAM.MSG.GET.{name}"), &asked).await?;
            let message = &answer["message"];
            ensure!(message.is_object(), "message {seq} of {name}: {answer}");
            let headers = decoded(message["hdrs"].as_str().unwrap_or_default())?;
            let headers = String::from_utf8_lossy(&headers);
            let mut lines = headers.lines().filter_map(|line| line.split_once(':'));
            let id = lines.find(|(header, _)| header.eq_ignore_ascii_case(ID));
            let body = decoded(message["data"].as_str().unwrap_or_default())?;
            all.push(Message::new(id.map(|(_, id)| id), &body));
        }
        Ok(all)
    }

    /// How many messages of a stream a durable consumer of it has not acked: those that are out, and those to come.
    ///
    /// # Errors
    /// When there is no such consumer.
    pub async fn unsettled(&mut self, stream: &str, consumer: &str) -> Result<u64> {
        let ask = format!("CONSUMER.INFO.{stream}.{consumer}");
        let info = self.ask(&ask, &json!({})).await?;
        let count = |what: &str| info[what].as_u64().context(info.to_string());
        Ok(count("num_pending")? + count("num_ack_pending")?)
    }

    /// Changes settings of a stream, as a person would.
    ///
    /// # Errors
    /// When the server refuses it.
    pub async fn change(&mut self, stream: &str, settings: &Value) -> Result<()> {
        let info = self
            .ask(&format!("STREAM.INFO.{stream}"), &json!({}))
            .await?;
        let mut config = info["config"].clone();
        let (Some(config_of), Some(settings)) = (config.as_object_mut(), settings.as_object())
        else {
            bail!("no settings: {info}");
        };
        config_of.extend(settings.clone());
        let answer = self
            .ask(&format!("STREAM.UPDATE.{stream}"), &config)
            .await?;
        ensure!(answer["error"].is_null(), "{answer}");
        Ok(())
    }

    async fn ask(&mut self, what: &str, body: &Value) -> Result<Value> {
        let body = body.to_string();
        let asked = format!("PUB $JS.API.{what} {INBOX} {}\r\n{body}\r\n", body.len());
        self.0.write_all(asked.as_bytes()).await?;
        loop {
            let line = self.line().await.with_context(|| what.to_owned())?;
            if line == "PING" {
                self.0.write_all(b"PONG\r\n").await?;
            } else if let Some(said) = line.strip_prefix("MSG ") {
                let length = said.rsplit(' ').next().unwrap_or_default();
                let mut payload = vec![0; length.parse::<usize>()? + 2];
                self.0.read_exact(&mut payload).await?;
                return Ok(serde_json::from_slice(&payload)?);
            } else if line.starts_with("-ERR") {
                bail!("{what}: {line}");
            }
        }
    }

    async fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        let read = timeout(PATIENCE, self.0.read_line(&mut line)).await;
        let read = read.context("NATS does not answer")??;
        ensure!(read > 0, "NATS has closed the connection");
        Ok(line.trim_end().to_owned())
    }
}
