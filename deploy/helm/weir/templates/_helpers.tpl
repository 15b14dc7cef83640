{{- define "weir.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
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

{{- define "weir.serviceAccount" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "weir.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "weir.image" -}}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) }}
{{- end }}

{{- /* Whether there may be more than one replica. */}}
{{- define "weir.many" -}}
{{- if or .Values.autoscaling.enabled (gt (int .Values.replicaCount) 1) }}true{{ end }}
{{- end }}

{{- /* weir.yaml: what the chart knows, over what the values say. */}}
{{- define "weir.settings" -}}
{{- $settings := deepCopy .Values.settings }}
{{- if .Values.store.url }}
{{- $_ := set $settings "store" (merge (dict "url" .Values.store.url) (default dict $settings.store)) }}
{{- end }}
{{- if .Values.store.passwordSecret.name }}
{{- $redis := dict "redis" (dict "password_file" "/etc/weir/store-password/password") }}
{{- $_ := set $settings "store" (mergeOverwrite (default dict $settings.store) $redis) }}
{{- end }}
{{- if .Values.snapshot.enabled }}
{{- $snapshot := dict "snapshot" (dict "path" "/var/lib/weir/snapshot" "every" .Values.snapshot.every) }}
{{- $_ := set $settings "store" (mergeOverwrite (default dict $settings.store) $snapshot) }}
{{- end }}
{{- toYaml $settings }}
{{- end }}

{{- /* What must not be installed, with why. */}}
{{- define "weir.refuse" -}}
{{- if and (include "weir.many" .) (not .Values.store.url) }}
{{- fail "several replicas without store.url would each count for themselves: set store.url, or replicaCount: 1 and autoscaling.enabled: false" }}
{{- end }}
{{- if and .Values.snapshot.enabled .Values.store.url }}
{{- fail "snapshot.enabled is of no use with store.url: the counts are in the store" }}
{{- end }}
{{- if and .Values.store.passwordSecret.name (not .Values.store.url) }}
{{- fail "store.passwordSecret without store.url: there is no store to show the password to" }}
{{- end }}
{{- end }}
