/**
 * A command in a controller of NestJS, on either of its platforms:
 *
 *   readonly #useItem = nestCommand(commands, useItem, { principal: (request) => request.user?.id })
 *   @Post('use-item') useItem(@Req() request: Request, @Res() response: Response) { return this.#useItem(request, response) }
 *
 * Guards and pipes run before it as usual; what the command's own code throws reaches Nest's exception filters.
 */
import type { Command } from '../command/model/command.ts'
import type { Commands } from '../command/commands.ts'
import type { CommandEndpointOptions } from './command-endpoint.ts'
import { expressCommand, type ExpressRequestLike, type ExpressResponseLike } from './express.ts'
import { fastifyCommand, type FastifyReplyLike } from './fastify.ts'

export type { CommandEndpointOptions } from './command-endpoint.ts'

/** What `@Res()` injects: the response of platform-express, or the reply of platform-fastify. */
export type NestResponse = ExpressResponseLike | FastifyReplyLike

/** What a controller's method returns after it has answered by itself. */
export function nestCommand<Request extends ExpressRequestLike, Input, Output>(
  commands: Pick<Commands, 'run'>,
  command: Command<Input, Output>,
  options: CommandEndpointOptions<Request, Input>,
): (request: Request, response: NestResponse) => Promise<void> {
  const onExpress = expressCommand(commands, command, options)
  const onFastify = fastifyCommand<Request & { readonly body: unknown }, Input, Output>(commands, command, options)
  return async (request, response) => {
    if ('code' in response) await onFastify(request as Request & { readonly body: unknown }, response)
    else await onExpress(request, response)
  }
}
