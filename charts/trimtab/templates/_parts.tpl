{{/* A plain manifest of deploy/, in the namespace of the release. */}}
{{- define "trimtab.manifest" -}}
{{ .root.Files.Get (printf "files/%s" .file) | replace "trimtab-system" .root.Release.Namespace }}
{{- end -}}

{{/* Not empty if the cluster has ValidatingAdmissionPolicies and the values enable them. */}}
{{- define "trimtab.hasAdmissionPolicies" -}}
{{- if and .Values.admissionPolicies.enabled (not (.Values.operator.config | default dict).watchNamespaces) (semverCompare ">=1.30.0-0" .Capabilities.KubeVersion.Version) }}yes{{ end -}}
{{- end -}}

{{/* Manifests with a ClusterRole and its binding; with watchNamespaces, as a Role and its binding in each namespace, without
     resources of the whole cluster. Takes root, manifest. */}}
{{- define "trimtab.roles" -}}
{{- $within := (.root.Values.operator.config | default dict).watchNamespaces -}}
{{- range $text := splitList "\n---\n" .manifest }}
{{- $object := fromYaml $text }}
{{- if and $within (hasPrefix "ClusterRole" $object.kind) }}
{{- $_ := set $object "kind" (trimPrefix "Cluster" $object.kind) }}
{{- with $object.roleRef }}{{ $_ := set . "kind" "Role" }}{{ end }}
{{- $_ := set $object.metadata "name" (printf "%s-watched" $object.metadata.name) }}
{{- with $object.roleRef }}{{ $_ := set . "name" $object.metadata.name }}{{ end }}
{{- if $object.rules }}
{{- $rules := list (dict "apiGroups" (list "") "resources" (list "namespaces") "verbs" (list "get")) }}
{{- range $object.rules }}
{{- $_ := set . "resources" (without .resources "nodes" "namespaces" "nodemetrics" "nodeqospolicies" "nodeqospolicies/status") }}
{{- if and .resources (not (has "admissionregistration.k8s.io" .apiGroups)) }}{{ $rules = append $rules . }}{{ end }}
{{- end }}
{{- $_ := set $object "rules" $rules }}
{{- end }}
{{- range $within }}
---
{{ $_ := set $object.metadata "namespace" . }}
{{- toYaml $object }}
{{- end }}
{{- else if $object }}
{{- if and (eq $object.kind "ServiceAccount") $.root.Values.operator.serviceAccountAnnotations }}
{{- $_ := set $object.metadata "annotations" $.root.Values.operator.serviceAccountAnnotations }}
{{- end }}
---
{{ toYaml $object }}
{{- end }}
{{- end }}
{{- end -}}

{{/* The rights on workloads of other API groups. */}}
{{- define "trimtab.customWorkloads" -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: trimtab-custom-workloads
rules:
  {{- range $group, $resources := .Values.operator.customWorkloads }}
  - apiGroups: [{{ $group }}]
    resources: {{ toJson $resources }}
    verbs: [get, list, watch, patch]
  - apiGroups: [{{ $group }}]
    resources:
      {{- range $resources }}
      - {{ . }}/scale
      {{- end }}
    verbs: [patch]
  {{- end }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: trimtab-custom-workloads
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: trimtab-custom-workloads
subjects:
  - kind: ServiceAccount
    name: trimtab-operator
    namespace: {{ .Release.Namespace }}
{{- end -}}

{{- define "trimtab.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}

{{/* The fields of a pod that the values set: image, resources, variables, scheduling. Takes root, values, workload. */}}
{{- define "trimtab.adjusted" -}}
{{- $pod := .workload.spec.template.spec -}}
{{- $container := index $pod.containers 0 -}}
{{- $_ := set $container "image" (include "trimtab.image" .root) -}}
{{- $_ := set $container "imagePullPolicy" .root.Values.image.pullPolicy -}}
{{- $_ := set $container "resources" .values.resources -}}
{{- range .values.env }}
{{- /* A number in plain notation: toString would turn 1000000 into 1e+06. */}}
{{- if and (hasKey . "value") (not (kindIs "string" .value)) }}{{ $_ := set . "value" (toJson .value) }}{{ end -}}
{{- $_ := set $container "env" (append ($container.env | default list) .) -}}
{{- end -}}
{{- with .root.Values.image.pullSecrets }}
{{- $names := list -}}
{{- range . }}{{ $names = append $names (dict "name" .) }}{{ end -}}
{{- $_ := set $pod "imagePullSecrets" $names -}}
{{- end -}}
{{- if .values.hostNetwork }}{{ $_ := set $pod "hostNetwork" true }}{{ $_ := set $pod "dnsPolicy" "ClusterFirstWithHostNet" }}{{ end -}}
{{- range $name := list "nodeSelector" "tolerations" "affinity" "priorityClassName" -}}
{{- with index $.values $name }}{{ $_ := set $pod $name . }}{{ end -}}
{{- end -}}
{{- with .values.podAnnotations }}
{{- $_ := set $.workload.spec.template.metadata "annotations" (merge (dict) . ($.workload.spec.template.metadata.annotations | default dict)) -}}
{{- end -}}
{{- with .values.podLabels }}
{{- $_ := set $.workload.spec.template.metadata "labels" (merge (dict) $.workload.spec.template.metadata.labels .) -}}
{{- end -}}
{{- toYaml .workload -}}
{{- end -}}

{{/* Mount what the values name into the container: Secrets, also those of the configuration, a CA bundle, and volumes of any type. Takes values, workload. */}}
{{- define "trimtab.addVolumes" -}}
{{- $pod := .workload.spec.template.spec -}}
{{- $container := index $pod.containers 0 -}}
{{- $config := .values.config | default dict -}}
{{- $folder := $config.secretsFolder | default "/run/trimtab/secrets" -}}
{{- $secrets := .values.secrets -}}
{{- range prepend ($config.additionalMetricsSources | default list) ($config.metricsSource | default dict) -}}
{{- with .secret }}{{ $secrets = append $secrets . }}{{ end -}}
{{- end -}}
{{- range $secrets | uniq }}
{{- /* The name of a volume is shorter than that of a Secret may be, and has no dots. */}}
{{- $volume := printf "secret-%s" (. | replace "." "-") }}
{{- if gt (len $volume) 63 }}{{ $volume = printf "secret-%s" (sha256sum . | trunc 32) }}{{ end }}
{{- $_ := set $pod "volumes" (append $pod.volumes (dict "name" $volume "secret" (dict "secretName" . "defaultMode" 288))) -}}
{{- $_ := set $container "volumeMounts" (append $container.volumeMounts (dict "name" $volume "mountPath" (printf "%s/%s" $folder .) "readOnly" true)) -}}
{{- end -}}
{{- with .values.caBundle.configMap }}
{{- $_ := set $pod "volumes" (append $pod.volumes (dict "name" "ca-bundle" "configMap" (dict "name" .))) -}}
{{- $_ := set $container "volumeMounts" (append $container.volumeMounts (dict "name" "ca-bundle" "mountPath" "/run/trimtab/ca" "readOnly" true)) -}}
{{- $_ := set $container "env" (append ($container.env | default list) (dict "name" "SSL_CERT_FILE" "value" (printf "/run/trimtab/ca/%s" $.values.caBundle.key))) -}}
{{- end -}}
{{- range .values.volumes }}{{ $_ := set $pod "volumes" (append $pod.volumes .) }}{{ end -}}
{{- range .values.volumeMounts }}{{ $_ := set $container "volumeMounts" (append $container.volumeMounts .) }}{{ end -}}
{{- end -}}
