//! A process that cannot outlive the test that started it.

use std::{
    fs::File,
    io::Write,
    path::Path,
    process::{Child, ChildStdin, Command, Stdio},
};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

/// Shell script that becomes the program, with a watcher beside it. A line on standard input makes the watcher kill the
/// program; the end of standard input, which comes when the parent process ends, makes it also remove the directory,
/// since no other process is left to do so.
const WATCHER: &str = r#"
dir=$1
shift
exec 3<&0 </dev/null
{
    if read -r _ <&3; then
        kill -9 $$
    else
        kill -9 $$
        sleep 0.2
        rm -rf "$dir"
    fi
} &
exec 3<&-
exec "$@"
"#;

/// A running process, killed on drop.
pub struct Process {
    child: Child,
    watcher: ChildStdin,
}

impl Process {
    /// Starts a program whose output goes to `log`. `dir` is removed when the test's process dies.
    pub fn start(program: &[&str], dir: &Path, log: &File) -> Self {
        let out = || log.try_clone().expect("a handle of the log");
        let mut command = Command::new("sh");
        command.args(["-c", WATCHER, "watcher"]).arg(dir).args(program).current_dir(dir);
        command.env("LC_ALL", "C").stdin(Stdio::piped()).stdout(out()).stderr(out());
        let mut child = command.spawn().expect("a shell");
        let watcher = child.stdin.take().expect("piped");
        Self { child, watcher }
    }

    /// Whether it has ended on its own. It stays a zombie, so that its pid is not reused and the watcher cannot kill
    /// another process.
    pub fn has_ended(&self) -> bool {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        waitid(WaitId::Pid(self.pid()), options).expect("our child").is_some()
    }

    /// Stops the process (SIGSTOP), and waits until it has stopped.
    pub fn pause(&self) {
        self.signal(Signal::STOP);
        waitid(WaitId::Pid(self.pid()), WaitIdOptions::STOPPED).expect("our child");
    }

    /// Continues the process (SIGCONT).
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).expect("our child");
    }
}

impl Drop for Process {
    /// Kills the process with SIGKILL, which also ends a stopped one.
    fn drop(&mut self) {
        // The watcher may have died with its process group.
        let _ = self.watcher.write_all(b"\n");
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
