//! Text editors in a terminal, in the middle of typing.

use std::os::fd::AsFd;
use std::time::Duration;

use ckpt_tests::processes::wait_until;
use ckpt_tests::{Launch, Life, Program, Restart, Scene, Stdout, checkpoint, code_of};
use nix::sys::termios::{InputFlags, LocalFlags, OutputFlags, tcgetattr};

/// An editor, and the keys that begin a text, go on with it, and save and leave.
struct Editor {
    program: Program,
    /// Shown when it is ready for keys.
    ready: &'static str,
    begin: &'static str,
    end: &'static str,
    /// Makes it draw.
    redraw: &'static str,
}

const FIRST: &str = "first line of the first life\rsecond line, half-way";
const LOST: &str = " typed and lost";
/// With a backspace, and with what lies beyond ASCII.
const SECOND: &str = " throughh\x7f and on in the second life\r\u{e9}t\u{e9}\rend";
const TEXT: &str = "first line of the first life\nsecond line, half-way through and on in the second life\n\
                    \u{e9}t\u{e9}\nend\n";

fn in_a_terminal(name: &str) -> Program {
    Program::installed(name).variable("TERM", "xterm").variable("LC_ALL", "C.UTF-8")
}

fn vim() -> Editor {
    let options = ["-u", "NONE", "-i", "NONE", "-N", "-n", "--cmd", "set encoding=utf-8", "text"];
    let program = options.iter().fold(in_a_terminal("vim"), Program::argument);
    Editor { program, ready: "[New]", begin: "i", end: "\x1b:wq\r", redraw: "" }
}

fn nano() -> Editor {
    let program = in_a_terminal("nano").argument("--ignorercfiles").argument("text");
    Editor { program, ready: "[ New File ]", begin: "", end: "\x18y\r", redraw: "\x0c" }
}

/// The modes of a life's terminal that a program sets to get keys as they are pressed.
fn modes(life: &Life<'_>) -> (InputFlags, OutputFlags, LocalFlags) {
    let terminal = life.terminal.as_ref().expect("this life has a terminal");
    let settings = tcgetattr(terminal.as_fd()).expect("it is a terminal");
    (settings.input_flags, settings.output_flags, settings.local_flags)
}

/// Both lives in a terminal of their own: one in its ordinary modes, which the editor has changed and expects changed
/// in its second life, or a raw one, where it makes no difference.
fn goes_on_in_the_middle_of_typing(editor: &Editor, terminal: Stdout) {
    let Editor { program, ready, begin, end, redraw } = editor;
    let scene = Scene::new();
    let mut first = Life::start(&scene, "life", program, &Launch::Preload, terminal);
    first.output.wait_for_text(ready);
    first.type_in(&format!("{begin}{FIRST}"));
    first.output.wait_for_text("half-way");
    let expected = modes(&first);
    assert!(!expected.2.contains(LocalFlags::ICANON), "an editor wants keys and not lines");
    let id = checkpoint(&scene, first.pid);
    first.type_in(LOST);
    first.output.wait_for_text("lost");
    first.kill();

    let restart = Restart::of(first.store()).id(id).stdout(terminal);
    let mut second = restart.begin(&scene, &first.directory, first.pid);
    if terminal == Stdout::OrdinaryTerminal {
        assert_eq!(modes(&second), expected, "the modes of the terminal");
        // It is told of its new terminal: vim draws, and nano forgets a key that comes just then, and draws for ^L.
        wait_until("the editor draws", Duration::from_secs(20), || {
            second.type_in(redraw);
            std::thread::sleep(Duration::from_millis(20));
            second.output.text().contains("half-way")
        });
    }
    second.type_in(&format!("{SECOND}{end}"));
    assert_eq!(code_of(second.wait()), 0, "{}", second.errors());
    let written = std::fs::read_to_string(first.directory.join("text")).expect("the editor has saved it");
    assert_eq!(written, TEXT);
}

#[test]
fn vim_goes_on_in_the_middle_of_typing() {
    goes_on_in_the_middle_of_typing(&vim(), Stdout::OrdinaryTerminal);
}

#[test]
fn nano_goes_on_in_the_middle_of_typing() {
    goes_on_in_the_middle_of_typing(&nano(), Stdout::OrdinaryTerminal);
}

#[test]
fn vim_goes_on_in_a_raw_terminal() {
    goes_on_in_the_middle_of_typing(&vim(), Stdout::Terminal);
}

#[test]
fn nano_goes_on_in_a_raw_terminal() {
    goes_on_in_the_middle_of_typing(&nano(), Stdout::Terminal);
}
