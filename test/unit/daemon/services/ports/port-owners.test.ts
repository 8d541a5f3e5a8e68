import { expect, test } from 'vitest';
import type { ListeningSockets } from '../../../../../src/daemon/linux/network/listening-sockets.ts';
import { PortOwners } from '../../../../../src/daemon/services/ports/port-owners.ts';

/** As in `ListeningSockets`: the place is 0 for 127.0.0.1 and 1 for ::1. */
function sockets(...each: [port: number, place: 0 | 1, uid: number, inode: number][]): ListeningSockets {
  return new Map(each.map(([port, place, uid, inode]) => [(uid * 4 + place) * 65_536 + port, inode]));
}

const targets = (owners: PortOwners) => [...owners.listeners].map(({ target, uid }) => [target, uid]);

test('who listens first keeps the port, also from an older socket, until he listens no more', () => {
  const owners = new PortOwners();
  expect(owners.update(sockets([80, 1, 1000, 7]))).toEqual([]);
  const both = sockets([80, 0, 2000, 3], [80, 1, 1000, 7]);
  expect(owners.update(both)).toEqual([{ port: 80, user: 2000, owner: 1000 }]);
  expect(owners.update(both)).toEqual([]);
  expect(targets(owners)).toEqual([['::1', 1000]]);
  owners.update(sockets([80, 0, 2000, 3]));
  expect(targets(owners)).toEqual([['127.0.0.1', 2000]]);
});

test('of two that are seen at once, the one with the older socket has the port', () => {
  const owners = new PortOwners();
  expect(owners.update(sockets([80, 0, 2000, 9], [80, 1, 1000, 8]))).toEqual([
    { port: 80, user: 2000, owner: 1000 },
  ]);
  expect(targets(owners)).toEqual([['::1', 1000]]);
});

test('owners of an earlier program keep their ports', () => {
  const owners = new PortOwners([{ port: 80, target: '::1', uid: 1000 }]);
  owners.update(sockets([80, 0, 2000, 1], [80, 1, 1000, 2]));
  expect(targets(owners)).toEqual([['::1', 1000]]);
});
