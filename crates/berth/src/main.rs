fn main() -> std::process::ExitCode {
    berth::main()
}
