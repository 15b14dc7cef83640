//! Authentication to Redis: passwords, users, password files that change, and the required ACL permissions.

use std::{fs, time::Duration};

use weir_store::{failure::ErrorCode, redis::settings::RedisSettings};

use deadpool_redis::redis::Value;

use crate::server::{Server, ask, connect, patient, pool, refused};

#[tokio::test]
async fn a_password_is_taken_from_the_url_or_the_settings() {
    let server = Server::unix(&["requirepass \"ge heim/@\""]);
    for url in [":ge heim/@@", ":ge%20heim%2F%40@", "default:ge heim/@@"] {
        connect(&server.url(url), &patient()).await.expect("the password is right");
    }
    let settings = RedisSettings { password: "ge heim/@".to_owned().into(), ..patient() };
    connect(&server.url(""), &settings).await.expect("the password is right");
    connect(&server.url(":wrong@"), &settings).await.expect("settings stand above the URL");

    let wrong = refused(&server.url(":wrong@"), &patient()).await;
    assert_eq!((wrong.error_code(), wrong.kind()), (Some(ErrorCode::WrongPass), "auth"), "{wrong}");
    let none = refused(&server.url(""), &patient()).await;
    assert_eq!((none.error_code(), none.kind()), (Some(ErrorCode::NoAuth), "auth"), "{none}");
}

/// The ACL permissions that docs/redis.md lists for checks.
const RIGHTS: [&str; 9] = ["script|load", "evalsha", "time", "hmget", "hset", "hdel", "pttl", "pexpire", "hrandfield"];

#[tokio::test]
async fn a_user_needs_the_documented_acl_permissions() {
    let server = Server::unix(&[]);
    let rights: Vec<_> = RIGHTS.iter().map(|right| format!("+{right}")).collect();
    server.run(&format!("ACL SETUSER app on >pw ~weir:* -@all {}", rights.join(" ")));
    connect(&server.url("app:pw@"), &patient()).await.expect("the rights suffice");
    let with_database = format!("{}?db=3", server.url("app:pw@"));
    let rejection = refused(&with_database, &patient()).await;
    assert_eq!(rejection.error_code(), Some(ErrorCode::NoPerm), "{rejection}");
    server.run("ACL SETUSER app +select");
    connect(&with_database, &patient()).await.expect("the rights suffice");

    for right in RIGHTS {
        server.run(&format!("ACL SETUSER app -{right}"));
        let rejection = refused(&server.url("app:pw@"), &patient()).await;
        assert_eq!(rejection.error_code(), Some(ErrorCode::NoPerm), "{right}: {rejection}");
        server.run(&format!("ACL SETUSER app +{right}"));
    }
    server.run("ACL SETUSER app resetkeys");
    let rejection = refused(&server.url("app:pw@"), &patient()).await;
    assert_eq!(rejection.error_code(), Some(ErrorCode::NoPerm), "{rejection}");
}

/// Connections for resets are reused only with permission for `PING` and `UNWATCH`.
#[tokio::test]
async fn connections_are_not_reused_without_the_ping_permission() {
    let server = Server::unix(&[]);
    let rights: Vec<_> = RIGHTS.iter().map(|right| format!("+{right}")).collect();
    server.run(&format!("ACL SETUSER app on >pw ~weir:* -@all {} +client|id", rights.join(" ")));
    let pool = pool(&server.url("app:pw@"), &patient(), 1);
    let mut last = Value::Nil;
    for _ in 0..3 {
        let connection = pool.get().await.expect("a connection");
        let id = ask(&connection, "CLIENT ID").await.expect("an id");
        assert_ne!(id, last);
        last = id;
    }
    assert_eq!(pool.sizes().0, 1, "nor are the old ones kept");
}

#[tokio::test]
async fn connections_select_the_urls_database_and_set_a_client_name() {
    let server = Server::unix(&[]);
    let connection = connect(&format!("{}?db=7", server.url("")), &patient()).await.expect("connected");
    // In RESP3 this reply is a verbatim string.
    let Ok(Value::VerbatimString { text: info, .. }) = ask(&connection, "CLIENT INFO").await else { panic!("no info") };
    assert!(info.contains(" db=7 ") && info.contains(" name=weir "), "{info}");

    let failure = refused(&format!("{}?db=99", server.url("")), &patient()).await;
    assert!(failure.to_string().contains("DB index is out of range"), "{failure}");
}

#[tokio::test]
async fn a_password_file_is_read_for_each_connection() {
    let server = Server::unix(&[]);
    let file = server.path("password");
    let settings = RedisSettings { username: "app".to_owned(), password_file: file.clone(), ..patient() };
    server.run("ACL SETUSER app on >first allkeys allcommands");
    fs::write(&file, "first\n").expect("written");
    connect(&server.url(""), &settings).await.expect("the first password is right");

    // One pool, to distinguish connections opened before the change from those opened after it.
    let pool = pool(&server.url(""), &settings, 2);
    let kept = pool.get().await.expect("the first password is right");
    server.run("ACL SETUSER app resetpass >second");
    let rejection = refused(&server.url(""), &settings).await;
    assert_eq!(rejection.error_code(), Some(ErrorCode::WrongPass), "{rejection}");
    fs::write(&file, "second\r\n").expect("written");
    connect(&server.url(""), &settings).await.expect("the second password is right");
    let new = pool.get().await.expect("the second password is right");
    ask(&kept, "PING").await.expect("an open connection stays");
    assert_eq!(pool.sizes(), (2, 0));
    drop((kept, new));

    for (change, expected) in [
        (Box::new(|| fs::write(&file, "\n").expect("written")) as Box<dyn Fn() + Send>, "empty"),
        (Box::new(|| fs::write(&file, vec![b'p'; 5_000]).expect("written")), "over 4096 bytes"),
        (Box::new(|| fs::remove_file(&file).expect("removed")), "No such file"),
    ] {
        change();
        let failure = refused(&server.url(""), &settings).await;
        assert_eq!(failure.kind(), "connect");
        assert!(failure.to_string().contains(expected), "{failure}");
    }
}

#[tokio::test]
async fn no_connection_is_opened_with_an_earlier_password() {
    let server = Server::unix(&["requirepass first"]);
    let file = server.path("password");
    let pool = pool(&server.url(""), &RedisSettings { password_file: file.clone(), ..patient() }, 1);
    // Several times, since a connection would have to be made within a millisecond.
    for _ in 0..20 {
        fs::write(&file, "first").expect("written");
        drop(pool.get().await.expect("the password is right"));
        fs::write(&file, "").expect("written");
        server.run("CLIENT KILL TYPE normal SKIPME yes");
        // Then the idle connection is known to be closed.
        tokio::time::sleep(Duration::from_millis(10)).await;
        let failure = pool.get().await.err().expect("no password");
        assert!(failure.to_string().contains("empty"), "{failure}");
    }
}
