import type { V1PersistentVolumeClaim, V1Pod } from '@kubernetes/client-node';
import { NETWORK, OWNER, SANDBOX, TEMPLATE, VOLUME } from './labels.ts';
import { labelOf, nameOf } from './state.ts';

/** A claim that is to stay when its Pod goes. */
export interface KeptClaim {
  readonly name: string;
  /** The cluster has made it for this Pod. */
  readonly podUid: string | undefined;
  readonly labels: Readonly<Record<string, string>>;
  readonly annotations: Readonly<Record<string, string>>;
}

/** Returns the claims that the cluster has made for the ephemeral volumes of a Pod, with all that a new Pod is made from. */
export function claimsOf(pod: V1Pod, sandbox: string): readonly KeptClaim[] {
  const { [NETWORK]: network, [OWNER]: owner } = pod.metadata?.annotations ?? {};
  return (pod.spec?.volumes ?? []).flatMap(({ name, ephemeral }) => {
    if (!ephemeral) return [];
    const labels = { [SANDBOX]: sandbox, [TEMPLATE]: labelOf(pod, TEMPLATE) ?? '' };
    const more = {
      ...(network !== undefined && { [NETWORK]: network }),
      ...(owner !== undefined && { [OWNER]: owner }),
    };
    // The cluster gives them these names.
    return {
      name: `${nameOf(pod)}-${name}`,
      podUid: pod.metadata?.uid,
      labels,
      annotations: { [VOLUME]: name, ...more },
    };
  });
}

/** Returns a Pod that has these claims in place of its ephemeral volumes, or the name of a volume that it lacks. */
export function withClaims(pod: V1Pod, claims: readonly V1PersistentVolumeClaim[]): V1Pod | string {
  const kept = new Map(
    claims.map(({ metadata }) => [metadata?.annotations?.[VOLUME] ?? '', metadata?.name ?? '']),
  );
  const { spec } = pod;
  if (!spec) return pod;
  const volumes = (spec.volumes ?? []).map((volume) => {
    const claimName = volume.ephemeral && kept.get(volume.name);
    if (!claimName) return volume;
    kept.delete(volume.name);
    return { name: volume.name, persistentVolumeClaim: { claimName } };
  });
  const [missing] = kept.keys();
  return missing ?? { ...pod, spec: { ...spec, volumes } };
}

/** Returns the name of the Pod that a claim was made for. No other Pod of this name could have a claim of its own. */
export function podNameOf({
  metadata: { name = '', annotations = {} } = {},
}: V1PersistentVolumeClaim): string {
  return name.slice(0, -`-${annotations[VOLUME] ?? ''}`.length);
}
