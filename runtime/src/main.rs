//! temporary
use ckpt_runtime::agent::*;
fn main() {
    ckpt_runtime::fault::arm_from_environment();
    let a: Vec<String> = std::env::args().collect();
    match a[1].as_str() {
        "agent" => {
            let trigger = a.get(5).map(|_| Trigger::Signal);
            ckpt_runtime::logging::start(0);
            if let Err(e) = serve(AgentOptions { pid: a[3].parse().unwrap(), first_trigger: trigger }) { eprintln!("ckpt: {e}"); std::process::exit(1) }
        }
        "checkpoint" => {
            let r = CheckpointRequest { trigger: Trigger::Command, wait_for_seal: true, kill: a.get(3).is_some() };
            match request_checkpoint(a[2].parse().unwrap(), &r, &mut |p| eprintln!("{p:?}")) { Ok(id) => println!("{id}"), Err(e) => { eprintln!("ckpt: {e}"); std::process::exit(e.exit_code().into()) } }
        }
        _ => {}
    }
}
