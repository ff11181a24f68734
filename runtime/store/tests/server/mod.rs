//! An S3 server of the test's own: moto in a process, on a port that it chooses, ended by its pid.

#![allow(dead_code, reason = "every test file uses a part of it")]

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::Duration,
};

use ckpt_store::backend::object::{AmazonS3Builder, Object};

pub const BUCKET: &str = "bucket";

pub struct Server {
    process: Child,
    address: String,
}

impl Server {
    /// Starts a server with one empty bucket. `None`, with a line that says so, where moto is not installed.
    pub fn start() -> Option<Self> {
        Self::start_with(&[])
    }

    pub fn start_with(environment: &[(&str, &str)]) -> Option<Self> {
        let Some(program) = program() else {
            skip("moto is not installed; scripts/test installs it");
            return None;
        };
        let mut command = Command::new(program);
        command.args(["-H", "127.0.0.1", "-p", "0"]).envs(environment.iter().copied());
        let mut process = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(process.stderr.take().unwrap()).lines().map_while(Result::ok);
        let address = lines.find_map(|line| Some(line.split_once("Running on http://")?.1.trim().to_owned()));
        // Whoever writes a log line for each request must not be kept from it.
        std::thread::spawn(move || lines.for_each(drop));
        let server = Self { process, address: address.expect("the server ended at its start") };
        let answer = server.request(&format!("PUT /{BUCKET}"));
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        Some(server)
    }

    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The variables with which a process finds the server.
    pub fn environment(&self) -> [(&'static str, String); 5] {
        [
            ("AWS_ENDPOINT_URL", self.endpoint()),
            ("AWS_ALLOW_HTTP", "true".into()),
            ("AWS_ACCESS_KEY_ID", "key".into()),
            ("AWS_SECRET_ACCESS_KEY", "secret".into()),
            ("AWS_REGION", "us-east-1".into()),
        ]
    }

    /// The back end for a prefix of the bucket.
    pub fn open(&self, prefix: &str, lease: Duration) -> Object {
        let mut service = AmazonS3Builder::new();
        for (name, value) in self.environment() {
            service = service.with_config(name.to_ascii_lowercase().parse().unwrap(), value);
        }
        Object::open_s3(service, &format!("s3://{BUCKET}/{prefix}"), Some(lease)).unwrap()
    }

    pub fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    fn request(&self, what: &str) -> String {
        let mut connection = TcpStream::connect(&self.address).unwrap();
        connection.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let request =
            format!("{what} HTTP/1.1\r\nHost: {}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", self.address);
        connection.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        connection.read_to_string(&mut answer).unwrap();
        answer
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// `CKPT_TEST_MOTO`, or where scripts/test puts it: beside the build.
fn program() -> Option<PathBuf> {
    let beside_build = || Some(std::env::current_exe().ok()?.ancestors().nth(3)?.join("moto/bin/moto_server"));
    let path = std::env::var_os("CKPT_TEST_MOTO").map(PathBuf::from).or_else(beside_build)?;
    path.exists().then_some(path)
}

/// Counted and named by scripts/test.
fn skip(why: &str) {
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    println!("skipped: {why}");
    if let Some(path) = std::env::var_os("CKPT_TESTS_SKIPPED") {
        let file = std::fs::OpenOptions::new().append(true).create(true).open(path);
        writeln!(file.unwrap(), "{test}: {why}").unwrap();
    }
}
