package dev.weir.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import dev.weir.client.LeaseMessages.Answer;
import dev.weir.client.LeaseMessages.AskService;
import dev.weir.client.LeaseMessages.Grant;
import dev.weir.client.LeaseMessages.Refuse;
import dev.weir.client.LeaseMessages.Request;
import dev.weir.client.LeaseMessages.Terms;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Optional;
import org.junit.jupiter.api.Test;

/** The state machine behaves as in the traces that all clients replay. */
class LeaseTracesTest {
    /** The outcome of an event. */
    private record Done(String what, long retryAfter, Optional<Request> send, long held) {}

    private LeaseMachine machine = new LeaseMachine();

    @Test
    void theMachineDoesWhatTheTracesSay() throws Exception {
        var lines = Files.readAllLines(Path.of("../traces/holder.jsonl"));
        var replayed = 0;
        for (var i = 0; i < lines.size(); i++) {
            var event = JsonParser.parseString(lines.get(i)).getAsJsonObject();
            if (event.has("trace")) {
                machine = new LeaseMachine();
                continue;
            }
            assertEquals(expected(event), replay(event), "line " + (i + 1));
            replayed++;
        }
        assertTrue(replayed > 1_000, "only " + replayed);
    }

    private static long number(JsonObject object, String name) {
        return object.has(name) ? object.get(name).getAsLong() : 0;
    }

    private static boolean flag(JsonObject object, String name) {
        return object.get(name).getAsBoolean();
    }

    private static Done expected(JsonObject event) {
        var send = event.getAsJsonObject("send");
        Optional<Request> request = send == null
                ? Optional.empty()
                : Optional.of(new Request(
                        number(send, "lease"), number(send, "sequence"), number(send, "spent"), number(send, "kept"),
                        number(send, "want"), number(send, "generation"), number(send, "cost")));
        var what = event.has("do") ? event.get("do").getAsString() : "";
        return new Done(what, number(event, "retry_after"), request, number(event, "held"));
    }

    private Done replay(JsonObject event) {
        var now = number(event, "at");
        if (event.has("check")) {
            return check(number(event, "check"), now);
        }
        Optional<Request> send = Optional.empty();
        if (event.has("tick")) {
            send = machine.onTick(now);
        } else if (event.has("answer")) {
            send = machine.answered(answer(event.getAsJsonObject("answer")), now);
        } else if (event.has("close")) {
            send = machine.close(now);
        } else if (event.has("lost")) {
            var lost = event.getAsJsonObject("lost");
            machine.lost(number(lost, "lease"), number(lost, "sequence"), now);
        } else {
            var checked = event.getAsJsonObject("checked");
            if (flag(checked, "refused")) {
                machine.checked(number(checked, "cost"), number(checked, "sent"), now);
            }
        }
        return done("", 0, send);
    }

    private Done check(long cost, long now) {
        var left = machine.balance.spend(cost, now);
        if (left != LeaseBalance.SHORT) {
            return done("spend", 0, machine.balance.isLow(left, now) ? machine.onLow(now) : Optional.empty());
        }
        var outcome = machine.onShortage(cost, now);
        if (outcome instanceof Refuse refuse) {
            return done("refuse", refuse.retryAfter(), Optional.empty());
        }
        return outcome instanceof AskService asks
                ? done("ask", 0, Optional.of(asks.request()))
                : done("check", 0, Optional.empty());
    }

    private Done done(String what, long retryAfter, Optional<Request> send) {
        return new Done(what, retryAfter, send, machine.balance.units());
    }

    private static Answer answer(JsonObject told) {
        var grant = Optional.ofNullable(told.getAsJsonObject("grant"))
                .map(it -> new Grant(
                        number(it, "units"), number(it, "free"), flag(it, "is_kept"), flag(it, "is_recalled"),
                        number(it, "refused_for")));
        var terms = Optional.ofNullable(told.getAsJsonObject("terms"))
                .map(it -> new Terms(
                        number(it, "generation"), number(it, "ttl"), number(it, "hold_off"), number(it, "scarce")));
        return new Answer(number(told, "lease"), number(told, "sequence"), flag(told, "refused"), grant, terms);
    }
}
