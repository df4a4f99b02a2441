{{- define "sidefetch.name" -}}
{{- $name := .Chart.Name -}}
{{- if contains $name .Release.Name -}}{{ .Release.Name | trunc 40 | trimSuffix "-" }}{{- else -}}
{{ printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" }}{{- end -}}
{{- end -}}

{{/* The labels of all objects of a component; (list . "component") */}}
{{- define "sidefetch.labels" -}}
{{- $top := index . 0 -}}
helm.sh/chart: {{ printf "%s-%s" $top.Chart.Name $top.Chart.Version }}
app.kubernetes.io/version: {{ $top.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $top.Release.Service }}
{{ include "sidefetch.selector" . }}
{{- end -}}

{{/* The selector of a component's pods. */}}
{{- define "sidefetch.selector" -}}
{{- $top := index . 0 -}}
app.kubernetes.io/name: {{ $top.Chart.Name }}
app.kubernetes.io/instance: {{ $top.Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{- define "sidefetch.image" -}}
{{- with .Values.image -}}
{{- if .digest }}{{ .repository }}@{{ .digest }}{{ else }}{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}{{ end -}}
{{- end -}}
{{- end -}}

{{/* The bytes of a size, as options take it: 64MiB, 1.5 GiB, 65536. */}}
{{- define "sidefetch.bytes" -}}
{{- $unit := regexFind "[A-Za-z]*$" . -}}
{{- $scales := dict "" 1 "B" 1 "KiB" 1024 "MiB" 1048576 "GiB" 1073741824 -}}
{{ mulf (regexFind "^[0-9.]+" . | float64) (get $scales $unit) | int64 }}
{{- end -}}

{{/*
The gateway's memory limit: the formula of proxy/kube/sizes.py. Its options may set --request-memory and
--max-connections, which otherwise follow from --memory.
*/}}
{{- define "sidefetch.gatewayMemoryLimit" -}}
{{- with .Values.gateway -}}
{{- $memory := include "sidefetch.bytes" .memory | int64 -}}
{{- $requests := get .options "request-memory" | default (include "sidefetch.requestMemory" .memory) -}}
{{- $connections := get .options "max-connections" | default (include "sidefetch.maxConnections" .memory) | int64 -}}
{{- $ofRequests := div (mul 5 (include "sidefetch.bytes" $requests | int64)) 2 -}}
{{- $bytes := add $memory $ofRequests (mul 131072 $connections) (mul 96 1048576) -}}
{{ div (add $bytes 1048575) 1048576 }}Mi
{{- end -}}
{{- end -}}

{{/* --request-memory for --memory, likewise; in KiB, because half of an odd number of MiB is not whole. */}}
{{- define "sidefetch.requestMemory" -}}
{{ div (include "sidefetch.bytes" . | int64) 2048 }}KiB
{{- end -}}

{{/* --max-connections for --memory, likewise. */}}
{{- define "sidefetch.maxConnections" -}}
{{ min (div (include "sidefetch.bytes" . | int64) 131072) 2000 }}
{{- end -}}

{{/* PodSecurity's "restricted", for a pod. */}}
{{- define "sidefetch.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{/* The same for a container. */}}
{{- define "sidefetch.security" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{- define "sidefetch.advertise" -}}
{{- .Values.gateway.advertise | default (printf "%s-gateway.%s.svc" (include "sidefetch.name" .) .Release.Namespace) -}}
{{- end -}}

{{- define "sidefetch.certificateSecret" -}}
{{- $own := printf "%s-webhook-certificate" (include "sidefetch.name" .) -}}
{{- with .Values.injection.certificate -}}
{{- ternary .secretName $own (eq .source "secret") -}}
{{- end -}}
{{- end -}}
