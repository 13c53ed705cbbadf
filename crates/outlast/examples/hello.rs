use outlast::{Attempt, Error, Failure, Job, Outlast};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Greet {
    name: String,
}
impl Job for Greet {
    const NAME: &'static str = "greet";
}
async fn greet(_: (), job: Attempt<Greet>) -> Result<(), Failure> {
    println!("hello {}, attempt {}", job.name, job.number());
    Ok(())
}
#[tokio::main]
async fn main() -> Result<(), Error> {
    Outlast::new().worker(()).job(greet).run().await
}
