/** Why a daemon cannot answer. */
export type Obstacle = 'paused' | 'expired' | 'ended';

const OBSTACLES: Readonly<Record<Obstacle, string>> = {
  paused: 'the sandbox is paused',
  expired: 'the sandbox has expired',
  ended: 'the gateway does not have this sandbox any more',
};

/** An obstacle for people. */
export function obstacleText(obstacle: Obstacle): string {
  return OBSTACLES[obstacle];
}
