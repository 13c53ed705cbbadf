use outlast::{Attempt, Consumer, Error, Event, Failure, Outlast};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Greeted {
    name: String,
}
impl Event for Greeted {
    const NAME: &'static str = "greeted";
}
async fn greet(_: (), e: Attempt<Greeted>) -> Result<(), Failure> {
    println!("hello {}, try {}", e.name, e.number());
    Ok(())
}
#[tokio::main]
async fn main() -> Result<(), Error> {
    let greeter = Consumer::new("greeter").on(greet);
    Outlast::new().worker(()).consumer(greeter).run().await
}
