{{- /* The namespace of the installation. */ -}}
{{- define "drawbridge.namespace" -}}
{{ .Values.namespace | default .Release.Namespace }}
{{- end -}}

{{- /* A text as part of a JSON string, so that it cannot end the string. */ -}}
{{- define "drawbridge.escaped" -}}
{{- toJson . | trimPrefix "\"" | trimSuffix "\"" -}}
{{- end -}}

{{- /* The configuration that the chart was written with, overridden by the values. */ -}}
{{- define "drawbridge.configuration" -}}
{{- $made := fromYaml (.Files.Get "objects/configuration.yaml") -}}
{{- toYaml (mergeOverwrite $made .Values.configuration) -}}
{{- end -}}

{{- /* The values that a level stands for. */ -}}
{{- define "drawbridge.level" -}}
{{- $values := .Values -}}
{{- $level := $values.level -}}
{{- if eq $level "readOnly" -}}
  {{- $_ := set $values "readOnly" true -}}
{{- end -}}
{{- if has $level (list "bridge" "node") -}}
  {{- $_ := set $values.bridge "enabled" true -}}
{{- end -}}
{{- if eq $level "node" -}}
  {{- $_ := set $values "nodeAgent" true -}}
  {{- $_ := set $values.bridge "reservations" true -}}
{{- end -}}
{{- end -}}

{{- /* Fail on values that cannot work. */ -}}
{{- define "drawbridge.refuse" -}}
{{- $values := .Values -}}
{{- if not $values.image -}}
  {{- fail "\n\nimage: none is given, and none is published. Build one (docs/install.md), and add --set image=REGISTRY/drawbridge:TAG" -}}
{{- end -}}
{{- if and $values.bridge.enabled (not $values.bridge.schedulerImage) -}}
  {{- fail "\n\nbridge.schedulerImage: the bridge needs the image of drawbridge's scheduler. Add --set bridge.schedulerImage=REGISTRY/drawbridge-scheduler:TAG" -}}
{{- end -}}
{{- if and $values.bridge.reservations (not (and $values.bridge.enabled $values.nodeAgent)) -}}
  {{- fail "\n\nbridge.reservations: needs the bridge's allocator and the audit agents. Add --set nodeAgent=true,bridge.enabled=true" -}}
{{- end -}}
{{- range $key := list "dialects" "keys" -}}
  {{- if index $values.configuration $key -}}
    {{- fail (printf "\n\nconfiguration.%s: the webhook configurations depend on it, and are written into the chart. Set it in a file, and run drawbridge manifests --chart DIR --config FILE" $key) -}}
  {{- end -}}
{{- end -}}
{{- if and (eq $values.certificates.from "files") (not $values.certificates.caBundle) -}}
  {{- fail "\n\ncertificates.caBundle: certificates.from=files needs the CA's certificate. Add --set-file certificates.caBundle=ca.crt" -}}
{{- end -}}
{{- end -}}

{{- /* Whether an object is part of the installation; "" if not. */ -}}
{{- define "drawbridge.wanted" -}}
{{- $root := index . 0 -}}
{{- $object := index . 1 -}}
{{- $values := $root.Values -}}
{{- $kind := $object.kind -}}
{{- if eq $kind "Namespace" -}}
  {{- if ne $object.metadata.name $root.Release.Namespace -}}yes{{- end -}}
{{- else if eq $kind "NetworkPolicy" -}}
  {{- if $values.networkPolicy.enabled -}}yes{{- end -}}
{{- else if hasPrefix "ValidatingAdmissionPolicy" $kind -}}
  {{- if $values.policies -}}yes{{- end -}}
{{- else if eq $object.metadata.name "devicequotas.drawbridge.dev" -}}
  {{- if $values.quota -}}yes{{- end -}}
{{- else -}}
yes
{{- end -}}
{{- end -}}

{{- /* The name of the template below that changes an object. */ -}}
{{- define "drawbridge.part" -}}
{{- if eq .kind "Deployment" -}}
deployment
{{- else if eq .kind "DaemonSet" -}}
daemons
{{- else if and (eq .kind "ConfigMap") (eq .metadata.name "drawbridge") -}}
file
{{- else if and (eq .kind "ConfigMap") (eq .metadata.name "drawbridge-managed-drivers") -}}
managed
{{- else if and (eq .kind "NetworkPolicy") (eq .metadata.name "drawbridge-webhook") -}}
callers
{{- else if hasSuffix "WebhookConfiguration" .kind -}}
registration
{{- else if eq .kind "PodMonitor" -}}
monitor
{{- else -}}
other
{{- end -}}
{{- end -}}

{{- define "drawbridge.other" -}}{{- end -}}

{{- define "drawbridge.file" -}}
{{- $text := (index . 0).Files.Get "objects/configuration.yaml" -}}
{{- if (index . 0).Values.configuration -}}
  {{- $text = toYaml (index . 2) -}}
{{- end -}}
{{- $_ := set (index . 1) "data" (dict "drawbridge.yaml" $text) -}}
{{- end -}}

{{- define "drawbridge.monitor" -}}
{{- $monitor := (index . 0).Values.monitor -}}
{{- $object := index . 1 -}}
{{- $_ := set $object.metadata "labels" (merge $object.metadata.labels $monitor.labels) -}}
{{- $_ := set (first $object.spec.podMetricsEndpoints) "interval" $monitor.interval -}}
{{- end -}}

{{- define "drawbridge.managed" -}}
{{- $data := dict -}}
{{- range (((index . 2).bridge | default dict).drivers) -}}
  {{- $_ := set $data . "given by the bridge" -}}
{{- end -}}
{{- $_ := set (index . 1) "data" $data -}}
{{- end -}}

{{- define "drawbridge.callers" -}}
{{- $blocks := list -}}
{{- range (index . 0).Values.networkPolicy.apiServers -}}
  {{- $blocks = append $blocks (dict "ipBlock" (dict "cidr" .)) -}}
{{- end -}}
{{- if $blocks -}}
  {{- $_ := set (first (index . 1).spec.ingress) "from" $blocks -}}
{{- end -}}
{{- end -}}

{{- /* DaemonSets select nodes by label and tolerate all taints, so the values for nodes and tolerations do not apply. */ -}}
{{- define "drawbridge.daemons" -}}
{{- with (index . 0).Values.imagePullSecrets -}}
  {{- $_ := set (index $ 1).spec.template.spec "imagePullSecrets" . -}}
{{- end -}}
{{- end -}}

{{- define "drawbridge.deployment" -}}
{{- $values := (index . 0).Values -}}
{{- $spec := (index . 1).spec -}}
{{- $pod := $spec.template.spec -}}
{{- $part := index $spec.selector.matchLabels "app.kubernetes.io/component" -}}
{{- if hasKey $values.replicas $part -}}
  {{- $_ := set $spec "replicas" (index $values.replicas $part) -}}
{{- end -}}
{{- range $key := list "tolerations" "nodeSelector" "priorityClassName" "imagePullSecrets" -}}
  {{- with index $values $key -}}
    {{- $_ := set $pod $key . -}}
  {{- end -}}
{{- end -}}
{{- range $container := $pod.containers -}}
  {{- with index $values.resources $container.name -}}
    {{- $_ := set $container "resources" . -}}
  {{- end -}}
  {{- with index $values.args $container.name -}}
    {{- $_ := set $container "args" (concat $container.args .) -}}
  {{- end -}}
{{- end -}}
{{- if and (eq $part "allocator") (ne $values.certificates.from "own") -}}
  {{- range $volume := $pod.volumes -}}
    {{- if eq $volume.name "reservations" -}}
      {{- $_ := set $volume.secret "secretName" $values.certificates.reservationsSecret -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- if and (eq $part "webhook") (ne $values.certificates.from "own") -}}
  {{- $webhook := first $pod.containers -}}
  {{- $folder := "/etc/drawbridge-tls" -}}
  {{- $_ := set $webhook "args" (concat $webhook.args (list (printf "--tls-cert=%s/tls.crt" $folder) (printf "--tls-key=%s/tls.key" $folder))) -}}
  {{- $_ := set $webhook "volumeMounts" (append $webhook.volumeMounts (dict "name" "tls" "mountPath" $folder "readOnly" true)) -}}
  {{- $_ := set $pod "volumes" (append $pod.volumes (dict "name" "tls" "secret" (dict "secretName" $values.certificates.secret))) -}}
{{- end -}}
{{- end -}}

{{- define "drawbridge.registration" -}}
{{- $values := (index . 0).Values -}}
{{- $object := index . 1 -}}
{{- $certificates := $values.certificates -}}
{{- $annotations := $object.metadata.annotations -}}
{{- $rules := fromJson (index $annotations "drawbridge.dev/rules") -}}
{{- $namespace := include "drawbridge.namespace" (index . 0) -}}
{{- if eq $certificates.from "cert-manager" -}}
  {{- $_ := set $annotations "cert-manager.io/inject-ca-from" ($certificates.certificate | default (printf "%s/%s" $namespace $certificates.secret)) -}}
{{- else if eq $certificates.from "files" -}}
  {{- $_ := unset $annotations "drawbridge.dev/rules" -}}
  {{- $_ := set $annotations "drawbridge.dev/ca-bundle" "other" -}}
{{- end -}}
{{- range $webhook := $object.webhooks -}}
  {{- if hasPrefix "pods." $webhook.name -}}
    {{- $_ := set $webhook "failurePolicy" $values.webhooks.failurePolicy -}}
  {{- end -}}
  {{- if $values.webhooks.url -}}
    {{- $_ := set $webhook.clientConfig "url" (printf "%s%s" (trimSuffix "/" $values.webhooks.url) $webhook.clientConfig.service.path) -}}
    {{- $_ := unset $webhook.clientConfig "service" -}}
  {{- end -}}
  {{- if eq $certificates.from "files" -}}
    {{- $_ := set $webhook.clientConfig "caBundle" (b64enc $certificates.caBundle) -}}
    {{- $_ := set $webhook "rules" (index $rules $webhook.name) -}}
  {{- end -}}
  {{- range $one := dig "namespaceSelector" "matchExpressions" list $webhook -}}
    {{- $_ := set $one "values" (uniq $one.values) -}}
  {{- end -}}
{{- end -}}
{{- /* With mode off as the default, namespaces without the label need no reviews. */ -}}
{{- if or $values.webhooks.optIn (eq (index . 2).mode "off") -}}
  {{- range $webhook := $object.webhooks -}}
    {{- range $one := dig "namespaceSelector" "matchExpressions" list $webhook -}}
      {{- if eq $one.key "drawbridge.dev/mode" -}}
        {{- $_ := set $one "operator" "In" -}}
        {{- $_ := set $one "values" (list "observe" "warn" "enforce") -}}
      {{- end -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- end -}}
