// Whether a request is what somebody who knows a secret has just sent, by the published library: it compares in constant
// time, and refuses what was signed more than five minutes away, either way.
import { Webhook } from "standardwebhooks";

export class UnverifiedError extends Error {}

/**
 * A function from body and headers to `{ id, body }`, which throws UnverifiedError. Secrets are `whsec_…`, several with
 * blanks between so that one can be rotated: one has to match.
 */
export function verifier(secrets) {
  const webhooks = secrets
    .split(/\s+/)
    .filter(Boolean)
    .map((secret) => new Webhook(secret));
  if (webhooks.length === 0) throw new Error("WEBHOOK_SECRETS holds no secret");

  return (body, headers) => {
    if (!webhooks.some((webhook) => accepts(webhook, body, headers))) throw new UnverifiedError("not verified");
    return { id: headers["webhook-id"], body };
  };
}

function accepts(webhook, body, headers) {
  try {
    webhook.verify(body, headers, { jsonParse: false });
    return true;
  } catch (error) {
    if (error.name === "WebhookVerificationError") return false;
    throw error;
  }
}
