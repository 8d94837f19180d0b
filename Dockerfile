# The gateway as one static binary that runs as nobody in an empty image.
FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=dev
# grpcnotrace leaves out golang.org/x/net/trace, whose templates keep the linker from dropping what nobody calls: 8 MB.
RUN CGO_ENABLED=0 go build -tags grpcnotrace -trimpath -ldflags "-s -w -X main.version=${VERSION}" -o /gateway ./cmd/gateway

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /gateway /gateway
# Rules that are scripts, where the gateway looks for them by itself; a volume or a ConfigMap mounted here takes their place.
COPY scripts/lua /scripts/lua
USER 65532:65532
# Inside a container loopback reaches nobody: probes and metrics are open on 8081, everything else there asks for a credential.
ENV GATEWAY_ADMIN=:8081
EXPOSE 8080 8081
ENTRYPOINT ["/gateway"]
CMD ["serve"]
