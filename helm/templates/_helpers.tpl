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

{{/* The memory limit for --memory: proxy/kube/sizes.py's formula. */}}
{{- define "sidefetch.memoryLimit" -}}
{{- $number := regexFind "^[0-9]+" . | int -}}
{{- $mib := ternary (mul $number 1024) $number (hasSuffix "GiB" .) -}}
{{ add (mul 2 $mib) 96 }}Mi
{{- end -}}

{{/* --request-memory for --memory, likewise; in KiB, because half of an odd number of MiB is not whole. */}}
{{- define "sidefetch.requestMemory" -}}
{{- $number := regexFind "^[0-9]+" . | int -}}
{{- $mib := ternary (mul $number 1024) $number (hasSuffix "GiB" .) -}}
{{ mul $mib 512 }}KiB
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
