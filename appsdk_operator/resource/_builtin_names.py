# The built-in kinds by name, for type checkers; made by hack/kinds_stub.py.

from appsdk_operator.resource._builtin_groups import Group, Version
from appsdk_operator.resource._kind import Kind


class _AdmissionregistrationV1(Version):
    MutatingWebhookConfiguration: Kind
    ValidatingAdmissionPolicy: Kind
    ValidatingAdmissionPolicyBinding: Kind
    ValidatingWebhookConfiguration: Kind


class _Admissionregistration(Group):
    v1: _AdmissionregistrationV1


class _ApiextensionsV1(Version):
    CustomResourceDefinition: Kind


class _Apiextensions(Group):
    v1: _ApiextensionsV1


class _ApiregistrationV1(Version):
    APIService: Kind


class _Apiregistration(Group):
    v1: _ApiregistrationV1


class _AppsV1(Version):
    ControllerRevision: Kind
    DaemonSet: Kind
    Deployment: Kind
    ReplicaSet: Kind
    StatefulSet: Kind


class _Apps(Group):
    v1: _AppsV1


class _AuthenticationV1(Version):
    SelfSubjectReview: Kind
    TokenReview: Kind


class _Authentication(Group):
    v1: _AuthenticationV1


class _AuthorizationV1(Version):
    LocalSubjectAccessReview: Kind
    SelfSubjectAccessReview: Kind
    SelfSubjectRulesReview: Kind
    SubjectAccessReview: Kind


class _Authorization(Group):
    v1: _AuthorizationV1


class _AutoscalingV1(Version):
    HorizontalPodAutoscaler: Kind


class _AutoscalingV2(Version):
    HorizontalPodAutoscaler: Kind


class _Autoscaling(Group):
    v1: _AutoscalingV1
    v2: _AutoscalingV2


class _BatchV1(Version):
    CronJob: Kind
    Job: Kind


class _Batch(Group):
    v1: _BatchV1


class _CertificatesV1(Version):
    CertificateSigningRequest: Kind


class _Certificates(Group):
    v1: _CertificatesV1


class _CoordinationV1(Version):
    Lease: Kind


class _Coordination(Group):
    v1: _CoordinationV1


class _CoreV1(Version):
    Binding: Kind
    ComponentStatus: Kind
    ConfigMap: Kind
    Endpoints: Kind
    Event: Kind
    LimitRange: Kind
    Namespace: Kind
    Node: Kind
    PersistentVolumeClaim: Kind
    PersistentVolume: Kind
    Pod: Kind
    PodTemplate: Kind
    ReplicationController: Kind
    ResourceQuota: Kind
    Secret: Kind
    ServiceAccount: Kind
    Service: Kind


class _Core(Group):
    v1: _CoreV1


class _DiscoveryV1(Version):
    EndpointSlice: Kind


class _Discovery(Group):
    v1: _DiscoveryV1


class _EventsV1(Version):
    Event: Kind


class _Events(Group):
    v1: _EventsV1


class _FlowcontrolV1(Version):
    FlowSchema: Kind
    PriorityLevelConfiguration: Kind


class _Flowcontrol(Group):
    v1: _FlowcontrolV1


class _NetworkingV1(Version):
    IngressClass: Kind
    Ingress: Kind
    NetworkPolicy: Kind


class _Networking(Group):
    v1: _NetworkingV1


class _NodeV1(Version):
    RuntimeClass: Kind


class _Node(Group):
    v1: _NodeV1


class _PolicyV1(Version):
    PodDisruptionBudget: Kind


class _Policy(Group):
    v1: _PolicyV1


class _RbacV1(Version):
    ClusterRoleBinding: Kind
    ClusterRole: Kind
    RoleBinding: Kind
    Role: Kind


class _Rbac(Group):
    v1: _RbacV1


class _SchedulingV1(Version):
    PriorityClass: Kind


class _Scheduling(Group):
    v1: _SchedulingV1


class _StorageV1(Version):
    CSIDriver: Kind
    CSINode: Kind
    CSIStorageCapacity: Kind
    StorageClass: Kind
    VolumeAttachment: Kind


class _Storage(Group):
    v1: _StorageV1


admissionregistration: _Admissionregistration
apiextensions: _Apiextensions
apiregistration: _Apiregistration
apps: _Apps
authentication: _Authentication
authorization: _Authorization
autoscaling: _Autoscaling
batch: _Batch
certificates: _Certificates
coordination: _Coordination
core: _Core
discovery: _Discovery
events: _Events
flowcontrol: _Flowcontrol
networking: _Networking
node: _Node
policy: _Policy
rbac: _Rbac
scheduling: _Scheduling
storage: _Storage
