import { describe, expect, test } from 'vitest';
import { readMetadata } from '../../../../../src/daemon/services/init/metadata.ts';
import { startMetadataService } from '../../../../support/servers/metadata-service.ts';

const never = new AbortController().signal;
const NOTHING = { sandboxID: null, templateID: null, accessTokenHash: null, address: null };

test('the names of members of today, and the older ones', async () => {
  await using service = await startMetadataService();
  const read = () => readMetadata(service.url, AbortSignal.timeout(5000));
  service.metadata = { instanceID: 'box', envID: 'plate', sandboxID: 'old', templateID: 'old' };
  expect(await read()).toEqual({ ...NOTHING, sandboxID: 'box', templateID: 'plate' });
  service.metadata = { sandboxID: 'box', templateID: 'plate' };
  expect(await read()).toEqual({ ...NOTHING, sandboxID: 'box', templateID: 'plate' });
});

test('gets a token for each reading, then the metadata', async () => {
  await using service = await startMetadataService();
  service.metadata = { sandboxID: 'box', templateID: 'plate', accessTokenHash: 'ab', other: 1 };
  const metadata = { ...NOTHING, sandboxID: 'box', templateID: 'plate', accessTokenHash: 'ab' };
  expect(await readMetadata(service.url, never)).toEqual(metadata);
  expect(await readMetadata(new URL('/v1/guest', service.url), never)).toEqual(metadata);
  expect(service.requests).toEqual([
    'PUT /latest/api/token',
    'GET /',
    'PUT /latest/api/token',
    'GET /v1/guest',
  ]);
});

test('the address of the collector, which is no reason to refuse the rest', async () => {
  await using service = await startMetadataService();
  service.metadata = { instanceID: 'box', address: 'http://10.0.0.1:30006/logs' };
  const read = () => readMetadata(service.url, never);
  expect(await read()).toEqual({ ...NOTHING, sandboxID: 'box', address: 'http://10.0.0.1:30006/logs' });
  service.metadata = { instanceID: 'box', address: { a: 1 } };
  expect(await read()).toEqual({ ...NOTHING, sandboxID: 'box' });
});

test.each([
  ['nothing', {}],
  ['null and empty texts', { sandboxID: null, templateID: '', accessTokenHash: null }],
])('%s', async (_, metadata) => {
  await using service = await startMetadataService();
  service.metadata = metadata;
  expect(await readMetadata(service.url, never)).toEqual(NOTHING);
});

describe('an unusable response is an error', () => {
  test.each([
    ['no JSON', 'secret{', 'the response is not JSON'],
    ['another value', '["secret"]', 'the response is not a JSON object'],
    ['another type', { sandboxID: { secret: 1 } }, 'sandboxID is not a string'],
    ['a NUL', { templateID: 'secret\0' }, 'templateID is not a string'],
    ['too much', `{"secret": "${'x'.repeat(70_000)}"}`, 'GET returned more than 65536 characters'],
  ])('%s', async (_, metadata, reason) => {
    await using service = await startMetadataService();
    service.metadata = metadata;
    await expect(readMetadata(service.url, never)).rejects.toMatchObject({
      kind: 'unavailable',
      message: `metadata service '${service.url}' cannot be read: ${reason}`,
    });
  });

  test.each(['PUT', 'GET'])('a refused %s', async (method) => {
    await using service = await startMetadataService();
    service.intercept = (request, response) => {
      response.writeHead(request.method === method ? 403 : 200).end('x');
    };
    await expect(readMetadata(service.url, never)).rejects.toThrow(
      `${method} returned status 403, expected 200`,
    );
  });

  test('a token that is not valid in a header', async () => {
    await using service = await startMetadataService();
    service.intercept = (_, response) => response.end('a\nb');
    await expect(readMetadata(service.url, never)).rejects.toMatchObject({ kind: 'unavailable' });
  });

  test('a connection that closes before or during the response', async () => {
    await using service = await startMetadataService();
    service.intercept = (request) => request.destroy();
    await expect(readMetadata(service.url, never)).rejects.toMatchObject({ kind: 'unavailable' });
    service.intercept = (request, response) => {
      response.writeHead(200, { 'content-length': 100 }).write('x');
      setImmediate(() => request.destroy());
    };
    await expect(readMetadata(service.url, never)).rejects.toMatchObject({ kind: 'unavailable' });
  });
});

test('an unreachable service is an error', async () => {
  const { url } = await startMetadataService().then(async (service) => {
    await service[Symbol.asyncDispose]();
    return service;
  });
  await expect(readMetadata(url, never)).rejects.toThrow(/cannot be read: .*ECONNREFUSED/);
});

test.each(['before the head', 'in the body'])('ends with its signal, %s', async (where) => {
  await using service = await startMetadataService();
  const asked = Promise.withResolvers<void>();
  service.intercept = (_, response) => {
    if (where === 'in the body') response.writeHead(200).write('x');
    asked.resolve();
  };
  const caller = new AbortController();
  const reading = readMetadata(service.url, caller.signal);
  await asked.promise;
  caller.abort(new Error('enough'));
  await expect(reading).rejects.toThrow('enough');
});
