/**
 * A command as `Request → Response`: for Hono, Bun, Deno, Next.js, Cloudflare, or any server that speaks Fetch.
 */
import type { Command } from '../command/command.ts'
import type { Commands } from '../command/commands.ts'
import { commandEndpoint, type CommandEndpointOptions } from './command-endpoint.ts'

export { consistencyToken } from './command-endpoint.ts'

/** Bodies are refused above this, before they are parsed. */
const maxBodyBytes = 1_048_576

/** A handler that runs the command with the request's JSON body as its input. */
export function fetchCommand<Input, Output>(
  commands: Pick<Commands, 'run'>,
  command: Command<Input, Output>,
  options: CommandEndpointOptions<Request, Input>,
): (request: Request) => Promise<Response> {
  const endpoint = commandEndpoint(commands, command, options)
  return async (request) => {
    const { status, headers, body } = await endpoint({
      native: request,
      header: (name) => request.headers.get(name) ?? undefined,
      body: () => readJson(request),
    })
    return new Response(body === undefined ? null : JSON.stringify(body), { status, headers })
  }
}

/** An empty body is `undefined`, for commands whose input comes from elsewhere. */
async function readJson(request: Request): Promise<unknown> {
  const chunks: Uint8Array[] = []
  let bytes = 0
  for await (const chunk of request.body ?? []) {
    bytes += chunk.byteLength
    if (bytes > maxBodyBytes) throw new RangeError(`The body has more than ${maxBodyBytes} bytes.`)
    chunks.push(chunk)
  }
  const text = Buffer.concat(chunks).toString('utf8')
  return text === '' ? undefined : (JSON.parse(text) as unknown)
}
