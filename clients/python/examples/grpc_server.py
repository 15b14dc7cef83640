"""A guarded gRPC server: each user has limits, and so has each method of a user."""

import os

import grpc

import weir
from weir.grpc_aio import RateLimit, key_of, metadata, method


async def serve(service: grpc.GenericRpcHandler, address: str) -> grpc.aio.Server:
    client = weir.AsyncClient(os.environ.get("WEIR_ADDR", "127.0.0.1:8081"))
    guard = RateLimit(client, key_of("user", metadata("x-user"), method), fail_closed={"Login"})
    server = grpc.aio.server(interceptors=[guard])
    server.add_generic_rpc_handlers((service,))
    server.add_insecure_port(address)
    await server.start()
    return server
