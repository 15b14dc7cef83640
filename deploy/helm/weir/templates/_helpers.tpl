{{- define "weir.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- /* The name of a further component, which is not Weir: list . COMPONENT. Labels have at most 63 characters. */}}
{{- define "weir.nameOf" -}}
{{- printf "%s-%s" (include "weir.name" (index . 0) | trunc 56 | trimSuffix "-") (index . 1) }}
{{- end }}

{{- define "weir.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 54 | trimSuffix "-" }}
{{- else if contains (include "weir.name" .) .Release.Name }}
{{- .Release.Name | trunc 54 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "weir.name" .) | trunc 54 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "weir.selector" -}}
app.kubernetes.io/name: {{ include "weir.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "weir.labels" -}}
{{ include "weir.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- /* The labels of a further component: list . COMPONENT */}}
{{- define "weir.labelsOf" -}}
{{- $labels := fromYaml (include "weir.labels" (index . 0)) }}
{{- merge (dict "app.kubernetes.io/name" (include "weir.nameOf" .)) $labels | toYaml }}
{{- end }}

{{- define "weir.serviceAccount" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "weir.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "weir.image" -}}
{{- if .Values.image.digest }}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest }}
{{- else }}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) }}
{{- end }}
{{- end }}

{{- /* The shared store, the chart's own Valkey included; empty for memory. */}}
{{- define "weir.store" -}}
{{- if .Values.valkey.enabled }}redis://{{ include "weir.valkey.name" . }}:6379{{ else }}{{ .Values.store.url }}{{ end }}
{{- end }}

{{- /* The ports of the store: those of networkPolicy.storePorts and of store.url, as a JSON array. Never empty: to Kubernetes no ports
are all of them. */}}
{{- define "weir.storePorts" -}}
{{- $ports := list }}
{{- range default (list 6379) .Values.networkPolicy.storePorts }}{{ $ports = append $ports (int .) }}{{ end }}
{{- /* The port of a host without one. Credentials end at the last @; after the hosts comes the master or the database. */}}
{{- $port := ternary 26379 6379 (hasPrefix "redis-sentinel:" .Values.store.url) }}
{{- $hosts := regexReplaceAll "^([^/]*//)?(.*@)?" .Values.store.url "" | regexFind "^[^/]*" }}
{{- range $hosts | splitList "," | compact }}
{{- $ports = append $ports (regexFind ":[0-9]+$" . | trimPrefix ":" | default $port | int) }}
{{- end }}
{{- $ports | uniq | toJson }}
{{- end }}

{{- /* The ports of the collector: those of networkPolicy.otlpPorts and of settings.tracing.otlp_endpoint, as a JSON array. */}}
{{- define "weir.otlpPorts" -}}
{{- $ports := list }}
{{- range default (list 4317) .Values.networkPolicy.otlpPorts }}{{ $ports = append $ports (int .) }}{{ end }}
{{- with regexFind ":[0-9]+(/|$)" .Values.settings.tracing.otlp_endpoint }}
{{- $ports = append $ports (regexFind "[0-9]+" . | int) }}
{{- end }}
{{- $ports | uniq | toJson }}
{{- end }}

{{- /* Whether there may be more than one replica. */}}
{{- define "weir.many" -}}
{{- if or .Values.autoscaling.enabled (gt (int .Values.replicaCount) 1) }}true{{ end }}
{{- end }}

{{- /* The policy files by name. The example is not a default of `limits`: Helm merges maps, so it would be in force beside the user's. */}}
{{- define "weir.limits" -}}
{{- if .Values.limits }}
{{- toYaml .Values.limits }}
{{- else if .Values.settings.limits_allow_empty }}
{{- "{}" }}
{{- else -}}
default.yaml: |
  schema:
    user:
      children:
        "*":
          limits:
            - name: per-user
              token_bucket: { capacity: 16, count: 30, period: 1m }
{{- end }}
{{- end }}

{{- /* weir.yaml: what the chart sets overrides `settings`. */}}
{{- define "weir.settings" -}}
{{- $settings := deepCopy .Values.settings }}
{{- with include "weir.store" . }}
{{- $_ := set $settings "store" (merge (dict "url" .) (default dict $settings.store)) }}
{{- end }}
{{- if .Values.store.passwordSecret.name }}
{{- $redis := dict "redis" (dict "password_file" "/etc/weir/store-password/password") }}
{{- $_ := set $settings "store" (mergeOverwrite (default dict $settings.store) $redis) }}
{{- end }}
{{- if .Values.snapshot.enabled }}
{{- $snapshot := dict "snapshot" (dict "path" "/var/lib/weir/snapshot" "every" .Values.snapshot.every) }}
{{- $_ := set $settings "store" (mergeOverwrite (default dict $settings.store) $snapshot) }}
{{- end }}
{{- if .Values.tls.secretName }}
{{- $pair := dict "cert" "/etc/weir/tls/tls.crt" "key" "/etc/weir/tls/tls.key" }}
{{- $clients := dict }}
{{- with .Values.tls.clientAuth }}
{{- $clients = dict "client_ca" (printf "/etc/weir/tls/%s" $.Values.tls.caKey) "client_auth" . }}
{{- end }}
{{- $_ := set $settings "grpc" (mergeOverwrite (default dict $settings.grpc) (dict "tls" (merge $clients $pair))) }}
{{- $_ := set $settings "http" (mergeOverwrite (default dict $settings.http) (dict "tls" $pair)) }}
{{- end }}
{{- if .Values.auth.secretName }}
{{- $_ := set $settings "auth" (dict "file" "/etc/weir/auth/callers.yaml") }}
{{- end }}
{{- toYaml $settings }}
{{- end }}

{{- /* Whether the HTTP port has TLS, by a value of the chart or by a setting. */}}
{{- define "weir.https" -}}
{{- if ((((fromYaml (include "weir.settings" .)).http).tls).cert) }}true{{ end }}
{{- end }}

{{- /* The same of the gRPC port. */}}
{{- define "weir.grpcs" -}}
{{- if ((((fromYaml (include "weir.settings" .)).grpc).tls).cert) }}true{{ end }}
{{- end }}

{{- /* Whether authentication is enabled, on both ports. */}}
{{- define "weir.authenticated" -}}
{{- $settings := fromYaml (include "weir.settings" .) }}
{{- if or ($settings.auth).file (($settings.grpc).tls).client_ca (($settings.http).tls).client_ca }}true{{ end }}
{{- end }}

{{- /* The port of settings.metrics.listen, if probes and Prometheus can reach it. */}}
{{- define "weir.metricsPort" -}}
{{- /* A number would be a float64. */}}
{{- $listen := default "" (.Values.settings.metrics).listen | toString }}
{{- if not (regexMatch "^(unix:|localhost:|127\\.|\\[::1\\])" $listen) }}{{ regexFind "[0-9]+$" $listen }}{{ end }}
{{- end }}

{{- /* The port of probes. */}}
{{- define "weir.probePort" -}}
{{- if include "weir.metricsPort" . }}port: metrics{{ else }}port: http{{ if include "weir.https" . }}, scheme: HTTPS{{ end }}{{ end }}
{{- end }}

{{- /* A duration in milliseconds, rounded down. */}}
{{- define "weir.milliseconds" -}}
{{- $units := dict "us" 0 "ms" 1 "s" 1000 "m" 60000 "h" 3600000 "d" 86400000 }}
{{- mul (regexFind "^[0-9]+" .) (get $units (regexFind "[a-z]+$" .)) }}
{{- end }}

{{- /* Whether `helm test` can call the gRPC port: it has no client certificate, and trusts only the chart's CA. */}}
{{- define "weir.testable" -}}
{{- $tls := default dict ((fromYaml (include "weir.settings" .)).grpc).tls }}
{{- $asks := and $tls.client_ca (ne (default "required" $tls.client_auth) "optional") }}
{{- if and (not $asks) (or .Values.tls.secretName (not $tls.cert)) }}true{{ end }}
{{- end }}

{{- define "weir.serverName" -}}
{{- default (printf "%s.%s.svc" (include "weir.fullname" .) .Release.Namespace) .Values.tls.serverName }}
{{- end }}

{{- /* Values that must not be installed, with the reason. */}}
{{- define "weir.refuse" -}}
{{- $settings := fromYaml (include "weir.settings" .) }}
{{- if (.Values.settings.store).url }}
{{- fail "settings.store.url is set: name the store by store.url, from which the chart also makes the network policy" }}
{{- end }}
{{- if .Values.settings.limits }}
{{- fail "settings.limits is set: WEIR_LIMITS of the image overrides it; set that variable in extraEnv" }}
{{- end }}
{{- if or (.Values.settings.grpc).listen (.Values.settings.http).listen }}
{{- fail "settings.grpc.listen or settings.http.listen is set: WEIR_GRPC__LISTEN and WEIR_HTTP__LISTEN of the image override them; set these variables in extraEnv" }}
{{- end }}
{{- if .Values.settings.allow_all }}
{{- fail "settings.allow_all is set, and so is WEIR_LIMITS of the image: set WEIR_ALLOW_ALL to true and WEIR_LIMITS to an empty text in extraEnv" }}
{{- end }}
{{- if and .Values.valkey.enabled .Values.store.url }}
{{- fail "valkey.enabled and store.url are both set: choose one store" }}
{{- end }}
{{- if and (include "weir.many" .) (not (include "weir.store" .)) }}
{{- fail "several replicas without store.url would each count for themselves: set store.url or valkey.enabled, or replicaCount: 1 and autoscaling.enabled: false" }}
{{- end }}
{{- if and .Values.snapshot.enabled (include "weir.store" .) }}
{{- fail "snapshot.enabled is of no use with store.url: the counts are in the store" }}
{{- end }}
{{- if and .Values.snapshot.enabled .Values.strategy (ne (default "" .Values.strategy.type) "Recreate") }}
{{- fail "snapshot.enabled with another strategy than Recreate: two pods cannot share one snapshot file" }}
{{- end }}
{{- $drain := add (include "weir.milliseconds" $settings.shutdown.delay) (include "weir.milliseconds" $settings.shutdown.timeout) }}
{{- if le (mul .Values.terminationGracePeriodSeconds 1000) $drain }}
{{- fail "terminationGracePeriodSeconds must be longer than settings.shutdown.delay and settings.shutdown.timeout together: pods would be killed before they have drained" }}
{{- end }}
{{- if and .Values.store.passwordSecret.name (not .Values.store.url) }}
{{- fail "store.passwordSecret without store.url: there is no store that needs a password" }}
{{- end }}
{{- if and .Values.tls.clientAuth (not .Values.tls.secretName) }}
{{- fail "tls.clientAuth without tls.secretName: without TLS clients cannot present a certificate" }}
{{- end }}
{{- if and .Values.tls.clientAuth (not .Values.tls.caKey) }}
{{- fail "tls.clientAuth needs tls.caKey: the CA certificate for clients" }}
{{- end }}
{{- if and .Values.serviceMonitor.enabled (include "weir.authenticated" .) (not (include "weir.metricsPort" .)) }}
{{- if not ($settings.auth).file }}
{{- fail "serviceMonitor with tls.clientAuth needs auth.secretName: no client may read metrics until the credentials file grants the role" }}
{{- end }}
{{- if not .Values.serviceMonitor.tokenSecret.name }}
{{- fail "serviceMonitor with authentication needs serviceMonitor.tokenSecret.name: the token of a client with the role metrics" }}
{{- end }}
{{- end }}
{{- end }}
