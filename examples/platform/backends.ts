import type { Backend } from './backend.ts';
import { Containers } from './containers.ts';
import { VirtualMachines } from './machines.ts';
import type { Settings } from './settings.ts';

export function backendOf(settings: Settings): Backend {
  return settings.backend === 'qemu' ? new VirtualMachines(settings) : new Containers(settings);
}
