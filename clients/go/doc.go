// Package weir is the client of Weir, the rate-limit service.
//
//	client, err := weir.New("127.0.0.1:8081")
//	decision, err := client.Check(ctx, weir.Key{"user", "alex", "trade"})
//
// A refusal is a decision, not an error: Decision.Allowed is false. An error means that the service did not decide. With
// OnFailure(Allow) or OnFailure(Deny) an outage is answered by a decision too, whose Source is Fallback.
//
// A call ends within 50 ms, its retries included (WithDeadline, Deadline). Calls that can be repeated without being charged twice
// are retried when a connection or a replica is lost. While the service is away a circuit breaker fails calls at once.
//
// WithLease decides checks of hot keys in this process, by units that the client holds.
//
// A Client is one connection for the whole process, safe for concurrent use. The packages weirhttp and weirgrpc guard servers by it.
package weir
