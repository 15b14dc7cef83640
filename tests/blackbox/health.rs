//! Health and reflection, as used by load balancers and grpcurl.

use std::collections::BTreeSet;

use bytes::Bytes;
use prost::Message;
use prost_types::FileDescriptorProto;
use tonic::{Code, transport::Channel};

use weir::transport::grpc::MAX_REFLECTIONS;

use crate::support::{Server, plain::Plain, server::Setup};

const QUOTAS: &str = "envoy.service.rate_limit_quota.v3.RateLimitQuotaService";

/// Starts a service that divides limits among Envoys.
fn dividing() -> Server {
    Setup::new().policy("domain: api\nschema: {}").env("WEIR_RLQS__DOMAINS", "api=user").start()
}

#[test]
fn the_health_command_prints_the_serving_status() {
    let mut server = Server::with_policy("schema: {}");
    let output = server.run(&["health"]);
    assert_eq!((output.code, output.out.as_str()), (0, "SERVING\n"));
    let output = server.run(&["health", "--service", "weir.v1.RateLimiter", "--json"]);
    assert_eq!((output.code, output.out.as_str()), (0, "{\"status\":\"SERVING\"}\n"));
    for service in ["other", QUOTAS] {
        let unknown = server.run(&["health", "--service", service]);
        assert!(unknown.code == 2 && unknown.err.contains("NOT_FOUND"), "{unknown:?}");
    }
    assert_eq!(dividing().run(&["health", "--service", QUOTAS]).out, "SERVING\n");
    server.stop();
    let gone = server.run(&["health"]);
    assert_eq!((gone.code, gone.out.as_str()), (2, ""));
}

/// Defines a client of one version of the reflection service.
macro_rules! reflection {
    ($name:ident, $version:ident) => {
        mod $name {
            use tonic_reflection::pb::$version::{
                ServerReflectionRequest, server_reflection_client::ServerReflectionClient,
                server_reflection_request::MessageRequest, server_reflection_response::MessageResponse,
            };

            use super::*;

            async fn ask(channel: &Channel, request: MessageRequest) -> MessageResponse {
                let request = ServerReflectionRequest { host: String::new(), message_request: Some(request) };
                let mut client = ServerReflectionClient::new(channel.clone());
                let stream =
                    client.server_reflection_info(futures_util::stream::iter([request])).await.expect("a stream");
                let answer = stream.into_inner().message().await.expect("an answer").expect("an answer");
                answer.message_response.expect("something in it")
            }

            fn files(answer: MessageResponse) -> Vec<FileDescriptorProto> {
                let MessageResponse::FileDescriptorResponse(files) = answer else { panic!("{answer:?}") };
                let read = |bytes: Vec<u8>| FileDescriptorProto::decode(&bytes[..]).expect("a descriptor");
                files.file_descriptor_proto.into_iter().map(read).collect()
            }

            pub async fn lists_services_and_returns_their_files(channel: &Channel, has_quotas: bool) {
                let MessageResponse::ListServicesResponse(services) =
                    ask(channel, MessageRequest::ListServices(String::new())).await
                else {
                    panic!("no list")
                };
                let services: BTreeSet<_> = services.service.into_iter().map(|service| service.name).collect();
                for service in ["weir.v1.RateLimiter", "weir.v1.Admin", "grpc.health.v1.Health"] {
                    assert!(services.contains(service), "{services:?}");
                }
                assert_eq!(services.contains(QUOTAS), has_quotas, "{services:?}");

                let mut known = BTreeSet::new();
                let symbol = MessageRequest::FileContainingSymbol("weir.v1.RateLimiter".to_owned());
                let mut open = files(ask(channel, symbol).await);
                assert!(
                    open[0].service.iter().any(|service| service.name() == "RateLimiter" && service.method.len() == 11)
                );
                while let Some(file) = open.pop() {
                    known.insert(file.name().to_owned());
                    for needed in file.dependency {
                        if !known.contains(&needed) {
                            open.extend(files(ask(channel, MessageRequest::FileByFilename(needed)).await));
                        }
                    }
                }
                let expected = ["google/protobuf/duration.proto", "weir/v1/weir.proto"].map(str::to_owned);
                assert_eq!(known, BTreeSet::from(expected));
            }
        }
    };
}

reflection!(reflection_v1, v1);
reflection!(reflection_v1alpha, v1alpha);

#[tokio::test]
async fn reflection_lists_services_and_returns_their_files() {
    for (server, has_quotas) in [(Server::with_policy("schema: {}"), false), (dividing(), true)] {
        let channel = server.channel().await;
        reflection_v1::lists_services_and_returns_their_files(&channel, has_quotas).await;
        reflection_v1alpha::lists_services_and_returns_their_files(&channel, has_quotas).await;
    }
}

#[tokio::test]
async fn unknown_methods_are_unimplemented_at_the_reflection_limit() {
    use tonic_reflection::pb::v1::{ServerReflectionRequest, server_reflection_client::ServerReflectionClient};
    let server = Server::with_policy("schema: {}");
    let mut client = ServerReflectionClient::new(server.channel().await);
    let endless = futures_util::stream::pending::<ServerReflectionRequest>;
    let mut open = Vec::new();
    for _ in 0..MAX_REFLECTIONS {
        open.push(client.server_reflection_info(endless()).await.expect("a stream"));
    }
    let full = client.server_reflection_info(endless()).await.expect_err("too many");
    assert_eq!(full.code(), Code::ResourceExhausted);
    let plain = Plain::connect(&server.grpc).await;
    for path in ["/weir.v1.RateLimiter/Other", "/grpc.reflection.v1.ServerReflection/Other", "/"] {
        let answer = plain.call(path, &[], Bytes::new()).await;
        assert_eq!((answer.code(), answer.is_head_alone), (Code::Unimplemented, true), "{path}: {answer:?}");
    }
}
