{{/* The gateway's environment variables; proxy/config defines those of options. */}}
{{- define "sidefetch.gatewaySettings" -}}
{{- with .Values.gateway -}}
{{- $last := sub (add .brokerPorts.first .brokerPorts.count) 1 -}}
{{- $settings := dict
  "bootstrap-servers" $.Values.bootstrapServers
  "memory" .memory
  "share-reads" .shareReads
  "allowed-apis" .allowedApis
  "request-memory" (include "sidefetch.requestMemory" .memory)
  "max-connections" (include "sidefetch.maxConnections" .memory)
  "listen" (printf "0.0.0.0:%d" (int .port))
  "broker-ports" (printf "%d-%d" (int .brokerPorts.first) $last)
  "advertise" (include "sidefetch.advertise" $)
  "admin-listen" "0.0.0.0:9080"
  "ready-requires-broker" "on"
  "grace" (printf "%ds" (int .graceSeconds))
  "log-format" "json"
-}}
{{- if .rack }}{{ $_ := set $settings "rack" .rack }}{{ end -}}
{{- if .tls.secretName -}}
{{- $_ := set $settings "listen-tls-cert" "/etc/sidefetch/tls/tls.crt" -}}
{{- $_ := set $settings "listen-tls-key" "/etc/sidefetch/tls/tls.key" -}}
{{- else -}}
{{- $_ := set $settings "insecure-listen" "on" -}}
{{- end -}}
{{- $variables := deepCopy .env -}}
{{- range $option, $text := merge (deepCopy .options) $settings -}}
{{- $_ := set $variables (printf "SIDEFETCH_%s" ($option | upper | replace "-" "_")) $text -}}
{{- end -}}
{{- toYaml $variables -}}
{{- end -}}
{{- end -}}
