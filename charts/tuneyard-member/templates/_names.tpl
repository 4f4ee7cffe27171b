{{- define "member.labels" -}}
app.kubernetes.io/name: tuneyard-member
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: tuneyard
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{/* The account that the hub comes as: one made here, or, for a hub in the same cluster, its own. */}}
{{- define "member.hubNamespace" -}}
{{- with .Values.hub.serviceAccount -}}
{{- .namespace | default (ternary $.Values.namespace.name $.Release.Namespace .create) -}}
{{- end -}}
{{- end }}

{{- define "member.hubSubject" -}}
- kind: ServiceAccount
  name: {{ .Values.hub.serviceAccount.name }}
  namespace: {{ include "member.hubNamespace" . }}
{{- end }}
