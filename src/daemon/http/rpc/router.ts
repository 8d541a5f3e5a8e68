import type { DescMessage, DescMethodUnary } from '@bufbuild/protobuf';
import type { ConnectRouter } from '@connectrpc/connect';
import { Filesystem } from '../../../gen/filesystem/filesystem_pb.js';
import { Process } from '../../../gen/process/process_pb.js';
import type { WriteGate } from '../../services/pause/write-gate.ts';
import type { ProcessTable } from '../../services/process/table.ts';
import { translateErrors } from '../connect/connect-node.ts';
import type { StreamExchange, StreamServer } from '../connect/connect-stream.ts';
import { type UnaryMethod, type UnaryRoute, unaryRoute } from '../connect/connect-unary.ts';
import { type EventStream, viaConnect } from '../connect/event-stream.ts';
import { callerOf, type RequestHeaders } from '../connect/request.ts';
import { filesystemService } from './filesystem.ts';
import { processService } from './process.ts';
import { connectStream, startStream } from './process-streams.ts';
import { type WatchDependencies, watchDirStream, watcherService } from './watch.ts';

export interface RpcDependencies extends WatchDependencies {
  readonly processes: ProcessTable;
  readonly gate: WriteGate;
}

/** A stream that is served without connect-node. */
export interface StreamRoute {
  readonly path: string;
  /** Resolves with the error that ended the stream, or null. */
  serve(exchange: StreamExchange): Promise<unknown>;
}

/** All RPCs: `streams` and `unary` for the Connect protocol; `register` adds them to connect-node for the others. */
export interface Rpc {
  register(router: ConnectRouter): void;
  readonly streams: readonly StreamRoute[];
  readonly unary: readonly UnaryRoute[];
}

export function createRpc(dependencies: RpcDependencies, streams: StreamServer): Rpc {
  const { processes, guest } = dependencies;
  const start = startStream(processes, guest);
  const connect = connectStream(processes);
  const watchDir = watchDirStream(dependencies);
  const userOf = (context: { requestHeader: RequestHeaders }) => callerOf(context.requestHeader, guest);
  const processCalls = processService(processes);
  const filesystemCalls = {
    ...filesystemService({ ...dependencies, userOf }),
    ...watcherService(dependencies),
  };
  const unary = [...processRoutes(processCalls), ...filesystemRoutes(filesystemCalls)];
  const options = { interceptors: [translateErrors] };
  return {
    streams: [route(streams, start), route(streams, connect), route(streams, watchDir)],
    unary,
    register(router) {
      for (const call of unary) call.register(router, options);
      router.rpc(Process.method.start, viaConnect(start), options);
      router.rpc(Process.method.connect, viaConnect(connect), options);
      router.rpc(Process.method.streamInput, processCalls.streamInput, options);
      const strict = { ...options, jsonOptions: { ignoreUnknownFields: false } };
      router.rpc(Filesystem.method.watchDir, viaConnect(watchDir), strict);
    },
  };
}

function processRoutes(calls: ReturnType<typeof processService>): UnaryRoute[] {
  const { list, update, sendInput, sendSignal, closeStdin } = Process.method;
  // Newer clients send properties that are not known.
  const unary = <I extends DescMessage, O extends DescMessage>(
    method: DescMethodUnary<I, O>,
    handle: UnaryMethod<I, O>['handle'],
  ) => unaryRoute({ method, handle, ignoreUnknownFields: true, isOwnJson: true });
  return [
    unary(list, calls.list),
    unary(update, calls.update),
    unary(sendInput, calls.sendInput),
    unary(sendSignal, calls.sendSignal),
    unary(closeStdin, calls.closeStdin),
  ];
}

type FilesystemCalls = ReturnType<typeof filesystemService> & ReturnType<typeof watcherService>;

function filesystemRoutes(calls: FilesystemCalls): UnaryRoute[] {
  const { stat, makeDir, move, listDir, remove } = Filesystem.method;
  const { createWatcher, getWatcherEvents, removeWatcher } = Filesystem.method;
  // The interface forbids unknown properties.
  const unary = <I extends DescMessage, O extends DescMessage>(
    method: DescMethodUnary<I, O>,
    handle: UnaryMethod<I, O>['handle'],
  ) => unaryRoute({ method, handle, ignoreUnknownFields: false });
  return [
    unary(stat, calls.stat),
    unary(makeDir, calls.makeDir),
    unary(move, calls.move),
    unary(listDir, calls.listDir),
    unary(remove, calls.remove),
    unary(createWatcher, calls.createWatcher),
    unary(getWatcherEvents, calls.getWatcherEvents),
    unary(removeWatcher, calls.removeWatcher),
  ];
}

function route<E, I extends DescMessage, O extends DescMessage>(
  streams: StreamServer,
  stream: EventStream<E, I, O>,
): StreamRoute {
  const { parent, name } = stream.method;
  return { path: `/${parent.typeName}/${name}`, serve: (exchange) => streams.serve(stream, exchange) };
}
