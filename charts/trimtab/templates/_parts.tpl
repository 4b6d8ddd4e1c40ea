{{/* A plain manifest of deploy/, in the namespace of the release. */}}
{{- define "trimtab.manifest" -}}
{{ .root.Files.Get (printf "files/%s" .file) | replace "trimtab-system" .root.Release.Namespace }}
{{- end -}}

{{/* Not empty if the cluster has ValidatingAdmissionPolicies and the values enable them. */}}
{{- define "trimtab.hasAdmissionPolicies" -}}
{{- if and .Values.admissionPolicies.enabled (semverCompare ">=1.30.0-0" .Capabilities.KubeVersion.Version) }}yes{{ end -}}
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
{{- toYaml .workload -}}
{{- end -}}
