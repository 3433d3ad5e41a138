/**
 * A command as a handler of Express 5: `app.post('/use-item', express.json(), expressCommand(commands, useItem, { principal: … }))`.
 *
 * Use it behind `express.json()`. A promise that rejects reaches Express's own error handling.
 */
import type { Command } from '../command/command.ts'
import type { Commands } from '../command/commands.ts'
import { commandEndpoint, type CommandEndpointOptions } from './command-endpoint.ts'
import { headerOf, type NodeHeaders } from './node-headers.ts'

/** The part of Express's request we use. */
export interface ExpressRequestLike {
  readonly headers: NodeHeaders
  readonly body?: unknown
}

/** The part of Express's response we use. */
export interface ExpressResponseLike {
  status(status: number): unknown
  set(headers: Record<string, string>): unknown
  send(body?: string): unknown
  end(): unknown
}

/** A handler that runs the command with the request's body as its input. */
export function expressCommand<Request extends ExpressRequestLike, Input, Output>(
  commands: Pick<Commands, 'run'>,
  command: Command<Input, Output>,
  options: CommandEndpointOptions<Request, Input>,
): (request: Request, response: ExpressResponseLike) => Promise<void> {
  const endpoint = commandEndpoint(commands, command, options)
  return async (request, response) => {
    const { status, headers, body } = await endpoint({
      native: request,
      header: (name) => headerOf(request.headers, name),
      body: () => request.body,
    })
    response.status(status)
    response.set({ ...headers })
    if (body === undefined) response.end()
    else response.send(JSON.stringify(body))
  }
}
