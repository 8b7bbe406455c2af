{{- /* Names, labels, the image, hearth.toml and the environment, shared by the templates beside this file. */ -}}

{{- define "hearth.fullname" -}}
{{- if .Values.fullnameOverride }}{{ .Values.fullnameOverride | trunc 48 | trimSuffix "-" }}
{{- else }}{{- $name := default .Chart.Name .Values.nameOverride }}
{{- if contains $name .Release.Name }}{{ .Release.Name | trunc 48 | trimSuffix "-" }}
{{- else }}{{ printf "%s-%s" .Release.Name $name | trunc 48 | trimSuffix "-" }}{{ end }}
{{- end }}
{{- end }}

{{- /* hearth.selector (dict "root" $ "component" "serve"): the labels by which a Service finds its pods. They never change. */ -}}
{{- define "hearth.selector" -}}
app.kubernetes.io/name: {{ default .root.Chart.Name .root.Values.nameOverride | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "hearth.labels" -}}
{{ include "hearth.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- end }}

{{- /* hearth.image (dict "root" $ "image" .Values.image "value" "image"): by digest, by tag, or by the chart's version. */ -}}
{{- define "hearth.image" -}}
{{- $repository := required (printf "%s.repository is missing: name the image that you have built (packaging/Containerfile.serve and .channels)" .value) .image.repository }}
{{- if .image.digest }}{{ printf "%s@%s" $repository .image.digest }}{{ else }}{{ printf "%s:%s" $repository (.image.tag | default .root.Chart.AppVersion) }}{{ end }}
{{- end }}

{{- /* A value as TOML. Helm reads every number as a float. JSON's strings are TOML's, too. */ -}}
{{- define "hearth.toml.value" -}}
{{- if kindIs "string" . }}{{ toJson . }}
{{- else if kindIs "float64" . }}{{ if eq (floor .) . }}{{ int64 . }}{{ else }}{{ . }}{{ end }}
{{- else if kindIs "slice" . }}[{{ range $at, $item := . }}{{ if $at }}, {{ end }}{{ include "hearth.toml.value" $item }}{{ end }}]
{{- else if kindIs "map" . }}{{ "{" }}{{ range $at, $key := keys . | sortAlpha }}{{ if $at }}, {{ end }}{{ include "hearth.toml.key" $key }} = {{ include "hearth.toml.value" (get $ $key) }}{{ end }}{{ "}" }}
{{- else }}{{ . }}{{ end }}
{{- end }}

{{- define "hearth.toml.key" -}}
{{ if regexMatch "^[A-Za-z0-9_-]+$" . }}{{ . }}{{ else }}{{ toJson . }}{{ end }}
{{- end }}

{{- /* hearth.toml.table (dict "path" "" "table" …): keys first, then tables with their headings. A value of null leaves its key out. */ -}}
{{- define "hearth.toml.table" -}}
{{- $path := .path -}}
{{- range $key, $value := .table }}
{{- if not (or (kindIs "map" $value) (kindIs "invalid" $value)) }}
{{ include "hearth.toml.key" $key }} = {{ include "hearth.toml.value" $value }}
{{- end }}
{{- end }}
{{- range $key, $value := .table }}
{{- if and (kindIs "map" $value) $value }}
{{- $heading := printf "%s%s" $path (include "hearth.toml.key" $key) }}

[{{ $heading }}]
{{- include "hearth.toml.table" (dict "path" (printf "%s." $heading) "table" $value) }}
{{- end }}
{{- end }}
{{- end }}

{{- /* Settings that are not taken from `settings` and `channels.settings`, each with what to do. */ -}}
{{- define "hearth.owned" -}}
http.listen: "pods listen on a port of the chart's; `service.port` and `channels.service.port` are the Services'"
admin.listen: "pods listen on :9180; `monitoring.service` has a Service for it"
admin.token: "name a Secret with it in `adminToken.existingSecret`"
php.boot_timeout: "set `bootSeconds`, which the startup probe follows"
server.shutdown_patience: "set `drain.requestSeconds`, which terminationGracePeriodSeconds follows"
realtime.adapter: "set `broker.url`, or `broker.existingSecret` if it has a password"
realtime.adapter_prefix: "set `broker.prefix`"
realtime.adapter_ca: "set `broker.caSecret`"
realtime.drain: "set `channels.drainSeconds`, which terminationGracePeriodSeconds follows"
{{- end }}

{{- define "hearth.refuse" -}}
{{- $where := .where }}
{{- $settings := .settings }}
{{- range $path, $instead := include "hearth.owned" $ | fromYaml }}
{{- $name := splitList "." $path }}
{{- if hasKey (get $settings (first $name) | default dict) (last $name) }}
{{- fail (printf "%s.%s is not taken from there: %s" $where $path $instead) }}
{{- end }}
{{- end }}
{{- end }}

{{- /* What the broker's values say to [realtime], beside the address, which is in the environment. */ -}}
{{- define "hearth.realtime" -}}
{{- with .Values.broker.prefix }}
adapter_prefix: {{ . | quote }}
{{- end }}
{{- if .Values.broker.caSecret }}
adapter_ca: /etc/hearth-broker/ca.crt
{{- end }}
{{- end }}

{{- define "hearth.serve.toml" -}}
{{- include "hearth.refuse" (dict "where" "settings" "settings" .Values.settings) -}}
{{- $own := dict "http" (dict "listen" ":8080") "admin" (dict "listen" ":9180")
    "php" (dict "boot_timeout" (printf "%ds" (int64 .Values.bootSeconds)))
    "server" (dict "shutdown_patience" (printf "%ds" (int64 .Values.drain.requestSeconds)))
    "realtime" (include "hearth.realtime" . | fromYaml) -}}
{{- include "hearth.toml.table" (dict "path" "" "table" (mergeOverwrite (deepCopy .Values.settings) $own)) | trim }}
{{- end }}

{{- /* Seconds that the server may take to end: as long as its requests, or as the slowest of its processes (`stop_timeout`, 60 s by default). */ -}}
{{- define "hearth.serve.ends" -}}
{{- $longest := int64 .Values.drain.requestSeconds }}
{{- range get .Values.settings "processes" | default dict }}
{{- $limit := get . "stop_timeout" | default "60s" }}
{{- $unit := dict "ms" 0.001 "s" 1.0 "m" 60.0 "h" 3600.0 }}
{{- $longest = max $longest (ceil (mulf (regexFind "^[0-9]+" $limit | float64) (get $unit (regexFind "[a-z]+$" $limit) | default 1.0))) }}
{{- end }}
{{- $longest }}
{{- end }}

{{- define "hearth.channels.toml" -}}
{{- include "hearth.refuse" (dict "where" "channels.settings" "settings" .Values.channels.settings) -}}
{{- $shared := dict "realtime" (deepCopy (get .Values.settings "realtime" | default dict)) "log" (deepCopy (get .Values.settings "log" | default dict)) -}}
{{- $own := dict "http" (dict "listen" ":6001") "admin" (dict "listen" ":9180")
    "realtime" (mergeOverwrite (include "hearth.realtime" . | fromYaml) (dict "drain" (printf "%ds" (int64 .Values.channels.drainSeconds)))) -}}
{{- include "hearth.toml.table" (dict "path" "" "table" (mergeOverwrite $shared (deepCopy .Values.channels.settings) $own)) | trim }}
{{- end }}

{{- /* Whether something joins the channels of several pods. */ -}}
{{- define "hearth.broker" -}}
{{- if and .Values.broker.url .Values.broker.existingSecret }}{{ fail "broker.url and broker.existingSecret exclude each other: the Secret has the URL" }}{{ end }}
{{- if or .Values.broker.url .Values.broker.existingSecret }}yes{{ end }}
{{- end }}

{{- /* hearth.environment (dict "root" $ "listen" ":8080"): secrets by the names of Secrets, and what the image sets, which would win over hearth.toml. */ -}}
{{- define "hearth.environment" -}}
- name: HEARTH_ADMIN_TOKEN
  valueFrom:
    secretKeyRef:
      name: {{ required "adminToken.existingSecret is missing: name a Secret with the admin address's token" .root.Values.adminToken.existingSecret }}
      key: {{ .root.Values.adminToken.key }}
- name: HEARTH_HTTP_LISTEN
  value: {{ .listen | quote }}
- name: HEARTH_ADMIN_LISTEN
  value: ":9180"
{{- with .root.Values.channelApps }}
{{- if .existingSecret }}
- name: HEARTH_REALTIME_APPS
  valueFrom:
    secretKeyRef:
      name: {{ .existingSecret }}
      key: {{ .key }}
{{- end }}
{{- end }}
{{- if include "hearth.broker" .root }}
- name: HEARTH_REALTIME_ADAPTER
  {{- with .root.Values.broker }}
  {{- if .url }}
  value: {{ .url | quote }}
  {{- else }}
  valueFrom:
    secretKeyRef:
      name: {{ .existingSecret }}
      key: {{ .key }}
  {{- end }}
  {{- end }}
{{- end }}
{{- end }}

{{- /* hearth.pod: what both kinds of pods are allowed, and where they run. */ -}}
{{- define "hearth.pod" -}}
automountServiceAccountToken: false
# Else each Service called hearth becomes variables such as HEARTH_PORT, among Hearth's own settings.
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: {{ int64 .Values.user }}
  runAsGroup: {{ int64 .Values.user }}
  fsGroup: {{ int64 .Values.user }}
  seccompProfile:
    type: {{ .Values.seccompProfile.type }}
    {{- with .Values.seccompProfile.localhostProfile }}
    localhostProfile: {{ . }}
    {{- end }}
{{- range $key := list "imagePullSecrets" "nodeSelector" "tolerations" "affinity" "topologySpreadConstraints" "priorityClassName" }}
{{- with get $.Values $key }}
{{ $key }}: {{- if kindIs "string" . }} {{ . }}{{ else }}{{ toYaml . | nindent 2 }}{{ end }}
{{- end }}
{{- end }}
{{- end }}

{{- define "hearth.container.security" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: ["ALL"]
{{- end }}

{{- /* hearth.probes: `/up` answers 503 with `starting` or `draining`, and 200 while requests are answered. hearth.probes (dict "startSeconds" 60 "preStopSeconds" 5) */ -}}
{{- define "hearth.probes" -}}
startupProbe:
  httpGet:
    path: /up
    port: admin
  periodSeconds: 2
  failureThreshold: {{ max 5 (div (add (int64 .startSeconds) 1) 2) }}
readinessProbe:
  httpGet:
    path: /up
    port: admin
  periodSeconds: 5
  failureThreshold: 1
livenessProbe:
  httpGet:
    path: /up
    port: admin
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
lifecycle:
  preStop:
    # Requests still come until every node knows that this pod ends. TERM, which follows, drains.
    exec:
      command: ["sleep", {{ .preStopSeconds | int64 | toString | quote }}]
{{- end }}
