{{- define "berth.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "berth.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else if contains (include "berth.name" .) .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "berth.name" .) | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "berth.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}
{{- end -}}

{{- define "berth.selector" -}}
app.kubernetes.io/name: {{ include "berth.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "berth.labels" -}}
{{ include "berth.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "berth.serverServiceAccount" -}}
{{- if .Values.server.serviceAccount.create -}}
{{- default (printf "%s-server" (include "berth.fullname" .)) .Values.server.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.server.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "berth.workerServiceAccount" -}}
{{- if .Values.workers.serviceAccount.create -}}
{{- default (printf "%s-worker" (include "berth.fullname" .)) .Values.workers.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.workers.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{/* The Secret of the servers' certificate: given, or made by cert-manager. */}}
{{- define "berth.tlsSecret" -}}
{{- if .Values.tls.existingSecret -}}
{{- .Values.tls.existingSecret -}}
{{- else -}}
{{- printf "%s-tls" (include "berth.fullname" .) -}}
{{- end -}}
{{- end -}}

{{- define "berth.serverUrl" -}}
{{- if .Values.workers.serverUrl -}}
{{- .Values.workers.serverUrl -}}
{{- else -}}
{{- printf "https://%s.%s.svc:%d" (include "berth.fullname" .) .Release.Namespace (int .Values.service.port) -}}
{{- end -}}
{{- end -}}

{{/* What a Secret must be named for is said here, once, before anything is rendered. */}}
{{- define "berth.check" -}}
{{- if not .Values.image.repository -}}
{{- fail "image.repository is required: where the image of the repository's Containerfile was pushed to" -}}
{{- end -}}
{{- if not .Values.database.existingSecret -}}
{{- fail "database.existingSecret is required: a Secret with the address of a PostgreSQL database under the key `url`" -}}
{{- end -}}
{{- if not .Values.encryptionKey.existingSecret -}}
{{- fail "encryptionKey.existingSecret is required: a Secret with the key ring under the key `ring`; without it each replica would have a key of its own" -}}
{{- end -}}
{{- if not (or .Values.tls.existingSecret .Values.tls.certManager.enabled) -}}
{{- fail "give tls.existingSecret or switch tls.certManager.enabled on: replicas must show certificates that clients can check" -}}
{{- end -}}
{{- if and .Values.tls.certManager.enabled (not .Values.tls.existingSecret) (not .Values.tls.certManager.issuerRef.name) -}}
{{- fail "tls.certManager.issuerRef.name is required with tls.certManager.enabled" -}}
{{- end -}}
{{- range .Values.workers.groups -}}
{{- if not .tokenSecret -}}
{{- fail (printf "workers.groups: %s has no tokenSecret, a Secret with a token of role worker; with `workers.groups: []` there are no workers" .name) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "berth.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "berth.containerSecurity" -}}
allowPrivilegeEscalation: false
privileged: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}
