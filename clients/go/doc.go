// Package weir is the Go client of Weir, the rate-limit service.
//
//	client, err := weir.New("127.0.0.1:8081")
//	decision, err := client.Check(ctx, weir.Key{"user", "alex", "trade"})
//
// A refusal is a decision, not an error: Decision.Allowed is false. An error means that the service did not decide. With OnFailure(Allow)
// (fail open) or OnFailure(Deny) (fail closed) an outage is answered by a decision too, whose Source is Fallback.
//
// A call ends within 50 ms, retries included (WithDeadline, Deadline). Idempotent calls are retried when a connection or a replica is lost.
// During an outage a circuit breaker fails calls immediately.
//
// WithLease decides checks of hot keys in this process, with units that the client leases.
//
// A Client is one connection for the whole process, safe for concurrent use. The packages weirhttp and weirgrpc guard HTTP and gRPC
// servers.
package weir
