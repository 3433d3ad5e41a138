/**
 * Commands and ingests as `Request → Response`: for Hono, Bun, Deno, Next.js, Cloudflare, or any server that speaks Fetch.
 */
import type { Command } from '../command/model/command.ts'
import type { Commands } from '../command/commands.ts'
import type { Ingest } from '../ingest/ingest.ts'
import { commandEndpoint, maxCommandBytes, type CommandEndpointOptions } from './command-endpoint.ts'
import { ingestEndpoint, type IngestEndpointOptions } from './ingest-endpoint.ts'
import { requestHeader } from './node-headers.ts'
import { toResponse } from './to-response.ts'
import { readJson } from '../core/encoding/read-json.ts'

export type { CommandEndpointOptions } from './command-endpoint.ts'
export { readTokenHeader } from '../projection/token-header.ts'
export type { IngestEndpointOptions } from './ingest-endpoint.ts'

/** A handler that runs the command with the request's JSON body as its input. */
export function fetchCommand<Input, Output>(
  commands: Pick<Commands, 'run'>,
  command: Command<Input, Output>,
  options: CommandEndpointOptions<Request, Input>,
): (request: Request) => Promise<Response> {
  const endpoint = commandEndpoint(commands, command, options)
  return async (request) =>
    toResponse(
      await endpoint({
        native: request,
        header: requestHeader(request),
        body: () => readJson(request, maxCommandBytes),
        signal: request.signal,
      }),
    )
}

/** A handler of everything under `options.path`: facts by POST, their state by GET. */
export function fetchIngest(ingest: Ingest, options: IngestEndpointOptions<Request>): (request: Request) => Promise<Response> {
  const endpoint = ingestEndpoint(ingest, options)
  return async (request) =>
    toResponse(
      await endpoint({
        native: request,
        method: request.method,
        url: request.url,
        header: requestHeader(request),
        body: () => readJson(request, ingest.limits.maxBodyBytes),
      }),
    )
}
