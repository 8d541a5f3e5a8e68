import { afterEach, beforeEach } from 'vitest';
import { TestKubernetes } from '../programs/kubernetes.ts';
import { FakeKubernetes } from './fake-kubernetes.ts';

interface Scene {
  /** The small API server of this test. */
  readonly cluster: FakeKubernetes;
  /** Starts envd-kubernetes with these flags. It ends with the test. */
  start(...args: readonly string[]): Promise<TestKubernetes>;
}

/** Gives each test of a file an API server of its own, which has this template as `base`. */
export function kubernetesScene(template: Readonly<Record<string, string>>): Scene {
  let cluster = new FakeKubernetes();
  let started: TestKubernetes[] = [];
  beforeEach(async () => {
    started = [];
    cluster = await new FakeKubernetes().start();
    cluster.template('base', template);
  });
  afterEach(async () => {
    for (const each of [...started, cluster]) await each[Symbol.asyncDispose]();
  });
  return {
    get cluster() {
      return cluster;
    },
    async start(...args) {
      const program = await new TestKubernetes(cluster.url, args).start();
      started.push(program);
      return program;
    },
  };
}
