import { describeKillsByName } from '../../support/attackers/kills-by-name.ts';

// The image has this test in test/daemon/life/dist.test.ts.
describeKillsByName('npm start', {
  name: 'envd',
  command: (scratch) =>
    `npm start --silent -- --host=127.0.0.1 --port=0 --no-cgroups --runtime-directory=${scratch}/run`,
  health: '/health',
  watchesMounts: true,
});

describeKillsByName('npm run gateway', {
  name: 'envd-gateway',
  command: (scratch) =>
    `npm run gateway --silent -- --host=127.0.0.1 --port=0 --api-key=the-key-of-the-platform ` +
    `--hook-directory=${scratch}/hooks --registry=${scratch}/registry.db`,
  health: '/gateway/health',
  watchesMounts: false,
});
