{{/* Names are fixed: two hubs in one cluster would work on the same JobSpecs, so that a second install is to fail. */}}
{{- define "hub.name" -}}tuneyard-hub{{- end }}

{{- define "hub.selector" -}}
app.kubernetes.io/name: tuneyard-hub
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "hub.labels" -}}
{{ include "hub.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: tuneyard
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "hub.image" -}}
{{- with .Values.image -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end -}}
{{- end }}

{{- define "hub.postgresql.selector" -}}
app.kubernetes.io/name: tuneyard-postgresql
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/part-of: tuneyard
{{- end }}

{{- define "hub.console.selector" -}}
app.kubernetes.io/name: tuneyard-hub-console
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "hub.console.labels" -}}
{{ include "hub.console.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: tuneyard
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{/* What the restricted Pod Security Standard asks of every container. */}}
{{- define "hub.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- define "hub.hasHistory" -}}
{{- if or .Values.postgresql.enabled .Values.postgresql.external.secretName }}true{{ end }}
{{- end -}}
