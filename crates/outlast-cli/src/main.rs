//! The binary `outlast`.

fn main() -> std::process::ExitCode {
    outlast_cli::main()
}
