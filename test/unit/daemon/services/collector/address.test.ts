import { expect, test } from 'vitest';
import { parseAddress } from '../../../../../src/daemon/services/collector/address.ts';

test.each([
  ['http://10.0.0.1:30006/logs?a=1', 'http://10.0.0.1:30006/logs?a=1'],
  ['https://collector.example', 'https://collector.example/'],
  ['10.0.0.1:30006', 'http://10.0.0.1:30006/'],
  ['localhost:8080', 'http://localhost:8080/'],
  ['collector', 'http://collector/'],
  ['[fd00::1]:8080', 'http://[fd00::1]:8080/'],
])('%s is %s', (text, url) => {
  expect(parseAddress(text)?.href).toBe(url);
});

test.each([
  'ftp://host/',
  'file:///etc/shadow',
  'host:99999',
  'host/path',
  'user@host',
  'http://',
  'a b',
  '',
  'http://host/\0'.repeat(500),
])('%j is none', (text) => {
  expect(parseAddress(text)).toBeNull();
});
