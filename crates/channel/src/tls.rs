//! TLS 1.3 (RFC 8446) between keys, not names: both ends show raw public keys (RFC 7250), and each knows the other's.
//! There is no certificate, no authority, no earlier version, no resumption and no early data, so nothing can be replayed.

use std::sync::{Arc, Mutex, PoisonError};

use linerate_model::pairing::PublicKey;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{AlwaysResolvesClientRawPublicKeys, Resumption};
use rustls::crypto::{CryptoProvider, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{
    CertificateDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer, UnixTime,
};
use rustls::server::AlwaysResolvesServerRawPublicKeys;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::sign::CertifiedKey;
use rustls::version::TLS13;
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, DistinguishedName, Error, ServerConfig,
    SignatureScheme,
};

use crate::identity::Identity;

/// The protocol inside: an agent of another one is refused in the handshake (RFC 7301).
const PROTOCOL: &[u8] = b"linerate/1";
/// What precedes the 32 bytes of an Ed25519 key in its SubjectPublicKeyInfo (RFC 8410, section 4).
const ED25519_PREFIX: [u8; 12] = [
    0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00,
];

/// The key that the other end has shown.
pub(crate) fn key_of(shown: &CertificateDer<'_>) -> Option<PublicKey> {
    let key = shown.strip_prefix(&ED25519_PREFIX)?;
    key.try_into().ok().map(PublicKey)
}

fn own_key(identity: &Identity, provider: &CryptoProvider) -> Result<Arc<CertifiedKey>, Error> {
    let der = PrivatePkcs8KeyDer::from(identity.pkcs8().to_vec());
    let key = provider.key_provider.load_private_key(der.into())?;
    let public = key
        .public_key()
        .ok_or(Error::General("no public key".to_owned()))?;
    let shown = CertificateDer::from(public.to_vec());
    Ok(Arc::new(CertifiedKey::new(vec![shown], key)))
}

/// The configuration of an agent that listens. Any key may call: what it may do is decided afterwards.
pub(crate) fn server(identity: &Identity) -> Result<Arc<ServerConfig>, Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let own = own_key(identity, &provider)?;
    let verifier = Arc::new(AnyKey {
        provider: Arc::clone(&provider),
    });
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(own)));
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    config.send_tls13_tickets = 0;
    config.max_early_data_size = 0;
    Ok(Arc::new(config))
}

/// A connection to the agent with the key `expected`, and to no other. The second part returns the key that answered
/// instead.
pub(crate) fn client(
    identity: &Identity,
    expected: PublicKey,
) -> Result<(ClientConnection, Arc<OnlyKey>), Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let own = own_key(identity, &provider)?;
    let verifier = Arc::new(OnlyKey {
        expected,
        other: Mutex::default(),
        provider: Arc::clone(&provider),
    });
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::<OnlyKey>::clone(&verifier))
        .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(own)));
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    config.resumption = Resumption::disabled();
    config.enable_sni = false;
    // Names play no part.
    let name = ServerName::try_from("linerate").map_err(|_| Error::General("name".to_owned()))?;
    let connection = ClientConnection::new(Arc::new(config), name)?;
    Ok((connection, verifier))
}

/// Accepts one key only.
#[derive(Debug)]
pub(crate) struct OnlyKey {
    expected: PublicKey,
    other: Mutex<Option<PublicKey>>,
    provider: Arc<CryptoProvider>,
}

impl OnlyKey {
    /// The key that answered instead.
    pub(crate) fn other(&self) -> Option<PublicKey> {
        *self.other.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Accepts any Ed25519 key that its caller can prove to have.
#[derive(Debug)]
struct AnyKey {
    provider: Arc<CryptoProvider>,
}

fn proves_key(
    message: &[u8],
    shown: &CertificateDer<'_>,
    signed: &DigitallySignedStruct,
    provider: &CryptoProvider,
) -> Result<HandshakeSignatureValid, Error> {
    let key = SubjectPublicKeyInfoDer::from(shown.as_ref());
    let algorithms = &provider.signature_verification_algorithms;
    verify_tls13_signature_with_raw_key(message, &key, signed, algorithms)
}

fn no_earlier_version() -> Error {
    Error::General("TLS 1.2 is not supported".to_owned())
}

fn not_a_key() -> Error {
    rustls::CertificateError::BadEncoding.into()
}

/// What both ends verify alike: the traits have no common part.
macro_rules! proves_raw_keys {
    () => {
        fn verify_tls12_signature(
            &self,
            _message: &[u8],
            _cert: &CertificateDer<'_>,
            _dss: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            Err(no_earlier_version())
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            cert: &CertificateDer<'_>,
            dss: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            proves_key(message, cert, dss, &self.provider)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            vec![SignatureScheme::ED25519]
        }

        fn requires_raw_public_keys(&self) -> bool {
            true
        }
    };
}

impl ServerCertVerifier for OnlyKey {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let key = key_of(end_entity).ok_or_else(not_a_key)?;
        if key == self.expected {
            return Ok(ServerCertVerified::assertion());
        }
        *self.other.lock().unwrap_or_else(PoisonError::into_inner) = Some(key);
        Err(rustls::CertificateError::ApplicationVerificationFailure.into())
    }

    proves_raw_keys!();
}

impl ClientCertVerifier for AnyKey {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        key_of(end_entity).ok_or_else(not_a_key)?;
        Ok(ClientCertVerified::assertion())
    }

    proves_raw_keys!();
}
