use std::time::Duration;

use weir_client::{Check, Client, Error, OnFailure, Reserve, Reset};

pub async fn recipe_1(weir: &Client) -> Result<(), Error> {
    let may_try = async |account: &str, address: &str| {
        for key in [["address", address], ["account", account]] {
            let check = Check::new(key).domain("login").on_failure(OnFailure::Deny);
            if !weir.check(check).await?.allowed {
                return Ok::<_, Error>(false);
            }
        }
        Ok(true)
    };
    let mut tries = 0;
    for _ in 0..6 {
        tries += u32::from(may_try("alex", "192.0.2.1").await?);
    }
    println!("{tries} tries of 6");
    // The password was right.
    weir.reset(Reset::new(["account", "alex"]).domain("login")).await?;
    let allowed = may_try("alex", "192.0.2.1").await?;
    println!("another one: {}", if allowed { "allowed" } else { "refused" });
    Ok(())
}

pub async fn recipe_2(weir: &Client) -> Result<(), Error> {
    for (plan, factor) in [("small", 1.0), ("large", 0.1), ("ourselves", 0.0)] {
        let decision = weir.check(Check::new(["customer", plan]).domain("plans").factor(factor)).await?;
        println!("{plan}: {} of {} left", decision.remaining, decision.limit);
    }
    Ok(())
}

pub async fn recipe_3(weir: &Client) -> Result<(), Error> {
    for mib in [5120, 8192, 20480] {
        let decision = weir.check(Check::new(["tenant", "acme"]).domain("bytes").cost(mib * 1024)).await?;
        let answer = match decision {
            decision if decision.allowed => "allowed",
            decision if decision.never => "never",
            _ => "later",
        };
        println!("{mib} MiB: {answer}");
    }
    Ok(())
}

pub async fn recipe_4(weir: &Client) -> Result<(), Error> {
    let team = Check::new(["team", "blue"]).domain("llm");
    let maximum = 8000;
    if weir.check(team.clone().cost(maximum)).await?.allowed {
        let used = 1500; // The usage that the model reports.
        weir.check(team.clone().cost(used - maximum)).await?;
    }
    println!("{} left", weir.check(team.cost(0)).await?.remaining);
    Ok(())
}

pub async fn recipe_5(weir: &Client) -> Result<(), Error> {
    for patience_min in [60, 60, 60, 5] {
        let check = Check::new(["receiver", "example.com"]).domain("webhooks");
        let decision = weir.check(check.max_wait(Duration::from_secs(60 * patience_min))).await?;
        if decision.allowed {
            println!("send in {:.0} min", decision.wait.as_secs_f64() / 60.0);
        } else {
            println!("refused");
        }
    }
    Ok(())
}

pub async fn recipe_6(weir: &Client) -> Result<(), Error> {
    for minutes in [1, 40, 40, 1] {
        let check = Check::new(["user", "alex", "search"]).domain("search").cost(minutes);
        println!("{minutes}: {}", if weir.check(check).await?.allowed { "allowed" } else { "refused" });
    }
    Ok(())
}

pub async fn recipe_7(weir: &Client) -> Result<(), Error> {
    weir.check(Check::new(["tenant", "acme"]).domain("backend").cost(100)).await?;
    for tenant in ["acme", "globex"] {
        let decision = weir.check(Check::new(["tenant", tenant]).domain("backend").levels()).await?;
        match decision.binding() {
            Some(level) if !decision.allowed => println!("{tenant}: refused by {}", level.name),
            _ => println!("{tenant}: allowed"),
        }
    }
    Ok(())
}

pub async fn recipe_8(weir: &Client) -> Result<(), Error> {
    for (user, action) in [("alex", "upload"), ("alex", "read"), ("status-page", "read")] {
        let decision = weir.check(Check::new(["user", user, action]).domain("api").levels()).await?;
        match decision.binding() {
            Some(level) => println!("{user} {action}: {}, {} left", level.name, level.remaining),
            None => println!("{user} {action}: no limit"),
        }
    }
    Ok(())
}

pub async fn recipe_9(weir: &Client) -> Result<(), Error> {
    let decision = weir.check(Check::new(["user", "alex"]).domain("exports").cost(10).levels()).await?;
    for level in decision.levels {
        println!("{}: {} of {} left", level.name, level.remaining, level.limit);
    }
    Ok(())
}

pub async fn recipe_10(weir: &Client) -> Result<(), Error> {
    let check = Check::new(["user", "alex"]).domain("rollout");
    weir.check(check.clone().cost(5)).await?;
    let decision = weir.check(check.levels()).await?;
    println!("{}", if decision.allowed { "allowed" } else { "refused" });
    for level in decision.levels {
        println!("{}: {}", level.name, if level.allowed { "allowed" } else { "would be refused" });
    }
    Ok(())
}

pub async fn recipe_11(weir: &Client) -> Result<(), Error> {
    let sign_in = async |account: &str, password: &str| {
        let reserve = Reserve::new(Check::new(["account", account]).domain("sign-in"));
        let Ok(attempt) = weir.reserve(reserve.ttl(Duration::from_secs(30))).await?.into_result() else {
            return Ok::<_, Error>("try later");
        };
        if password == "correct horse" {
            attempt.cancel().await?;
            return Ok("welcome");
        }
        attempt.commit(None).await?; // It counts.
        Ok("wrong")
    };
    let mut answers = Vec::new();
    for password in ["correct horse", "a", "b", "c", "d", "e", "correct horse"] {
        answers.push(sign_in("alex", password).await?);
    }
    println!("{}", answers.join(", "));
    Ok(())
}

pub async fn recipe_12(weir: &Client) -> Result<(), Error> {
    let ttl = Duration::from_secs(600);
    let reserve = Reserve::new(Check::new(["tenant", "acme"]).domain("uploads").cost(500)).ttl(ttl);
    if let Ok(mut upload) = weir.reserve(reserve).await?.into_result() {
        upload.extend(ttl).await?; // While it runs.
        let settled = upload.commit(600).await?;
        println!("charged {}, {} more than reserved", settled.charged, settled.overage);
    }
    Ok(())
}

pub async fn recipe_13(weir: &Client) -> Result<(), Error> {
    let start = Check::new(["queue", "mail"]).domain("jobs").max_wait(Duration::from_secs(30));
    if weir.check(start).await?.allowed {
        println!("start");
    }
    let reserve = Reserve::new(Check::new(["tenant", "acme"]).domain("jobs").cost(30)).ttl(Duration::from_secs(2400));
    if let Ok(job) = weir.reserve(reserve).await?.into_result() {
        let settled = job.commit(12).await?;
        println!("charged {} minutes, gave back {}", settled.charged, settled.refunded);
    }
    Ok(())
}

pub async fn recipe_14(weir: &Client) -> Result<(), Error> {
    let decision = weir.check(Check::new(["tokyo", "a"]).domain("billing").cost(1000)).await?;
    let answer = if decision.allowed { "allowed" } else { "refused" };
    println!("{answer} and {} left until the month ends", decision.remaining);
    Ok(())
}
